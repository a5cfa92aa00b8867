"""The search of layouts against trying all of them."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from htk.base.errors import UsageError
from htk.faces.cli.commands.plan import command
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.search import (
    SEARCH_LABEL,
    list_layouts,
    search_plans,
    search_table,
    usual_batch,
)
from htk.planning.plan.step import plan

JOB = PlannedJob(decoder("llama2-13b"), gpu("a100-80gb"), nodes=2, seq=4096, price=2.0)
MIXTURE = PlannedJob(decoder("mixtral-8x7b"), gpu("h100"), nodes=2, seq=4096)
WORDS = ("--search", "--model", "llama2-13b", "--gpu", "a100-80gb", "--nodes", "2", "--seq", "4096")


def test_every_layout_takes_the_same_batch_on_the_same_gpus() -> None:
    for job in (JOB, MIXTURE):
        tried = list(list_layouts(job, 128))
        assert len(tried) == len(set(tried)) > 100
        assert {j.global_batch for j in tried} == {128}
        assert {j.ranks for j in tried} == {16}
        assert all(job.model.heads % j.tensor_parallel == 0 for j in tried)
    assert {j.expert_parallel for j in list_layouts(MIXTURE, 128)} == {1, 2, 4, 8}


def test_the_fastest_is_first_and_what_does_not_fit_is_left_out() -> None:
    answer = search_plans(JOB, 128)
    plans = [plan(j) for j in list_layouts(JOB, 128)]
    fits = [p for p in plans if p.p_oom < 0.5]
    assert answer.tried == len(plans) and answer.too_large == len(plans) - len(fits) > 0
    assert len(answer.plans) == len(fits)
    assert answer.plans[0].step_ns == min(p.step_ns for p in fits)
    steps = [p.step_ns for p in answer.plans]
    assert steps == sorted(steps)


def test_the_front_is_what_no_other_beats_in_both() -> None:
    answer = search_plans(JOB, 128)
    points = [(p.step_ns, p.memory.total) for p in answer.plans]
    front = {
        order
        for order, (step, held) in enumerate(points)
        if not any(s <= step and m <= held and (s, m) != (step, held) for s, m in points)
    }
    first = {points.index(points[order]) for order in front}  # of equal ones
    assert answer.front == first
    assert 0 in answer.front and len(front) > 2


def test_the_table_and_its_picture() -> None:
    answer = search_plans(JOB, 128)
    rows = search_table(answer, most=5).to_pylist()
    assert rows[0]["behind_best_pct"] == 0
    assert sum(r["on_front"] for r in rows) == len(answer.front)
    assert all(r["step_time_ns_lo90"] < r["step_time_ns"] < r["step_time_ns_hi90"] for r in rows)
    assert {SEARCH_LABEL.chart.x, SEARCH_LABEL.chart.y} <= set(rows[0])  # type: ignore[union-attr]


def test_a_batch_of_about_four_million_tokens_unless_said() -> None:
    assert usual_batch(JOB) * JOB.seq == 1 << 22
    assert usual_batch(replace(JOB, seq=1 << 24)) == 1


def test_the_command_searches() -> None:
    done = CliRunner().invoke(command, (*WORDS, "--global-batch", "64", "--format", "json"))
    answer = json.loads(done.stdout)
    assert answer["analysis"] == "plan_search" and answer["coverage"]["batch"] == 64
    assert answer["rows"][0]["behind_best_pct"] == 0
    text = CliRunner().invoke(command, (*WORDS, "--global-batch", "64")).stdout
    assert "layouts, of which" in text and "checked: ampere GPUs" in text


def test_what_fits_nowhere_is_said() -> None:
    words = ("--search", "--model", "llama3-405b", "--gpu", "a100-40gb", "--seq", "8192")
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, UsageError) and "more GPUs" in str(error)


def test_a_batch_must_be_positive() -> None:
    with pytest.raises(UsageError):
        search_plans(JOB, -1)
