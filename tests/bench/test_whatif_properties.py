"""Random jobs and edits, held to simulated twins; and the twins themselves, worked out by hand."""

import random

import pytest

from bench.whatif_properties import (
    Drawn,
    Impossible,
    Unsimulated,
    cases,
    draw_edit,
    draw_job,
    edited_config,
    failures,
)
from htk.recording.simulate.config import Config

JOB = Config(
    layers=4, nodes=1, gpus_per_node=8, strategy="ddp", micro_batch=4, accumulation=2, seq=1024
)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ("tp=2 batch=global=32", {"tensor_parallel": 2, "micro_batch": 4}),
        ("world=2x8 batch=global=64", {"nodes": 2, "micro_batch": 2}),
        ("accumulation=2x seq=0.5x", {"accumulation": 4, "seq": 512}),
        ("pp=2", {"pipeline_parallel": 2, "accumulation": 4}),
        ("loss=fused optimizer=8bit", {"fused_loss": True, "optimizer": "adam-8bit"}),
    ],
)
def test_twins(edits: str, expected: dict[str, object]) -> None:
    pairs = [edit.partition("=") for edit in edits.split()]
    twin = edited_config(JOB, tuple(Drawn(name, value) for name, _, value in pairs))
    assert {name: getattr(twin, name) for name in expected} == expected


@pytest.mark.parametrize(
    "edit", [("tp", "3"), ("cp", "16"), ("batch", "0.3x"), ("accumulation", "global=5")]
)
def test_jobs_that_cannot_be(edit: tuple[str, str]) -> None:
    with pytest.raises(Impossible):
        edited_config(JOB, (Drawn(*edit),))


def test_what_has_no_twin() -> None:
    with pytest.raises(Unsimulated):
        edited_config(JOB, (Drawn("compile", "on"),))


def test_draws_repeat() -> None:
    jobs = [draw_job(random.Random(3)) for _ in range(2)]
    assert jobs[0] == jobs[1]
    edits = [draw_edit(random.Random(4), jobs[0]) for _ in range(2)]
    assert edits[0] == edits[1]


@pytest.mark.parametrize("jobs", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_few_random_jobs(jobs: int) -> None:
    found = [case for seed in range(jobs) for case in cases(seed)]
    assert len(found) > 2 * jobs
    assert not failures(found)
