"""Sites with planted efficiencies: what is learned of them, and what it does to plans."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.scorecard.jobs import Job, step_ns, write
from htk.faces.cli import main
from htk.physics.hardware import gpu
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan
from htk.planning.sites.site import (
    PlanAtSite,
)
from htk.planning.sites.site_file import read_site
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.sites.learning import MeasuredStep, RecordedRates, learn_site, recorded_rates

BASE = Job(model="llama2-7b", gpu="a100-80gb", nodes=2, gpus_per_node=4, steps=3, noise=0.02)
SHAPES = (
    {"micro_batch": 2, "seq": 2048, "layers": 4},
    {"micro_batch": 4, "seq": 2048, "layers": 3},
    {"micro_batch": 1, "seq": 4096, "layers": 6},
    {"micro_batch": 2, "seq": 4096, "layers": 4, "nodes": 1},
    {"micro_batch": 8, "seq": 1024, "layers": 3},
)
A100 = gpu("a100-80gb")


def _planned(job: Job) -> PlannedJob:
    return PlannedJob(
        job.decoder, gpu(job.gpu), job.nodes, job.gpus_per_node, job.micro_batch, job.seq,
        strategy=job.strategy, kernels="eager",
    )  # fmt: skip


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory,
) -> list[tuple[Job, RecordedRates, list[MeasuredStep]]]:
    """Three clusters of other efficiencies: what a recording shows, and steps of five jobs."""
    drawn = []
    for seed in (1, 3, 4):
        jobs = [BASE.with_(**shape).drawn(seed) for shape in SHAPES]
        folder = tmp_path_factory.mktemp(f"site{seed}")
        write(jobs[0].with_(ranks_only=(0, 1)), folder)
        rates = recorded_rates(open_trace(str(folder), OpenOptions(cache=False)))
        assert rates is not None
        drawn.append((jobs[0], rates, [MeasuredStep(_planned(j), step_ns(j)) for j in jobs]))
    return drawn


def test_planted_rates_are_seen(
    sites: list[tuple[Job, RecordedRates, list[MeasuredStep]]],
) -> None:
    """Each over what a plan expects; between sites they differ as was planted."""
    planted, seen = [], []
    for job, rates, _ in sites:
        assert rates.gpu.name == "a100-80gb" and rates.products and rates.adapters
        planted.append((job.compute, job.inter_gbps / job.gpus_per_node / A100.scale_out_gbps))
        seen.append((rates.products, rates.adapters))
    for (a, p), (b, q) in zip(
        zip(planted, seen, strict=True), [(planted[0], seen[0])] * 3, strict=True
    ):
        assert p[0] / q[0] == pytest.approx(a[0] / b[0], rel=0.06)
        assert p[1] / q[1] == pytest.approx(a[1] / b[1], rel=0.1)


def test_plans_of_jobs_left_out_get_nearer_and_their_bands_narrower_and_hold(
    sites: list[tuple[Job, RecordedRates, list[MeasuredStep]]],
) -> None:
    without, by_rates, by_steps, held = [], [], [], []
    for _, rates, steps in sites:
        for k, left_out in enumerate(steps):
            others = [step for i, step in enumerate(steps) if i != k]
            plans = (
                Plan(left_out.job),
                PlanAtSite(left_out.job, learn_site([rates], [])),
                PlanAtSite(left_out.job, learn_site([rates], others)),
            )
            missed = [abs(math.log(p.step_ns / left_out.step_ns)) for p in plans]
            for list_, value in zip((without, by_rates, by_steps), missed, strict=True):
                list_.append(value)
            sigmas = [p.certainty.sigma for p in plans]
            assert sigmas[0] > sigmas[1] > sigmas[2]
            low, high = plans[2].interval(90)
            held.append(low <= left_out.step_ns <= high)
    assert np.mean(by_rates) < 0.6 * np.mean(without)
    assert np.mean(by_steps) < 0.5 * np.mean(without)
    assert sum(held) >= 0.9 * len(held)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    yield tmp_path


_ROWS = (
    "model,gpu,nodes,micro_batch,seq,strategy,step_ms\n"
    "llama2-7b,a100-80gb,2,2,4096,full_shard,2600\n"
    "llama2-7b,a100-80gb,4,2,4096,,2750\n"
)


def test_a_folder_becomes_a_site_and_the_site_a_narrower_plan(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "mine/steps.csv").write_text(_ROWS)
    (workplace / "mine/notes.txt").write_text("no trace")
    assert main.run_command_line(["calibrate", "mine"]) == 0
    out, err = capsys.readouterr()
    assert "2 measured steps" in out and "left out mine" in err
    steps = read_site(workplace / "site.toml").gpus["a100-80gb"].steps
    assert steps is not None and steps.steps == 2 and steps.log_mean > 0.2
    words = ["plan", "--model", "llama2-13b", "--gpu", "a100-80gb", "--format", "json"]
    widths = []
    for site in ([], ["--site", "site.toml"]):
        assert main.run_command_line([*words, *site]) == 0
        row = json.loads(capsys.readouterr().out)["rows"][0]
        widths.append(row["step_time_ns_hi90"] / row["step_time_ns_lo90"])
    assert widths[1] < widths[0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("model,gpu\nllama2-7b,h100\n", "step_ms or step_s"),
        ("model,gpu,step_ms\nllama2-7b,h100,fast\n", "line 2: step_ms: a number"),
        ("model,gpu,step_ms\nllama2-7b,h100,-3\n", "line 2: step_ms: a positive time"),
        ("model,gpu,step_ms\nllama2-7b,q9,3\n", "line 2: no GPU"),
        ("model,gpu,tips,step_ms\nllama2-7b,h100,4,3\n", "line 2: No such option"),
        ("model,gpu,step_ms\nllama2-7b,h100\n", "as many values"),
    ],
)
def test_a_damaged_table_of_steps_is_one_line(
    rows: str, message: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "mine/steps.csv").write_text(rows)
    assert main.run_command_line(["calibrate", "mine"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_an_empty_folder_is_one_line(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["calibrate", "mine"]) == 2
    assert "neither a recording" in capsys.readouterr().err
