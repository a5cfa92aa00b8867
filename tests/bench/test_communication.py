"""Random jobs: htk and a plain reading of the same files agree on every call."""

from pathlib import Path

import pytest

from bench.comm_jobs import random_job
from bench.communication import compare_job


@pytest.mark.parametrize("seed", range(4))
def test_no_call_of_a_random_job_differs(seed: int, tmp_path: Path) -> None:
    found = compare_job(seed, tmp_path)
    assert found.calls > 50 and found.differences == []


def test_messages_of_batches_on_clocks_that_nothing_compares_have_no_waits(tmp_path: Path) -> None:
    """Seed 112: 64 hosts whose clocks are apart, and no collective."""
    assert compare_job(112, tmp_path).differences == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4, 80))
def test_no_call_of_many_random_jobs_differs(seed: int, tmp_path: Path) -> None:
    assert compare_job(seed, tmp_path).differences == []


def test_random_jobs_hold_what_they_are_for() -> None:
    """Clocks apart, files or calls missing, groups of one name, experts, batches of messages."""
    jobs = [random_job(seed) for seed in range(60)]
    assert any(len(set(job.clock.values())) > 1 for job in jobs)
    assert any(job.missing for job in jobs)
    names = [[(g.name, g.kind) for g in job.groups] for job in jobs]
    assert any(len(set(own)) < len(own) for own in names), "parts of a split are called alike"
    assert any(job.world > 30 for job in jobs), "lists of ranks are cut"
    kinds = [{call.group.kind for call in job.calls} for job in jobs]
    assert {"mesh_pp", "mesh_tp"} in kinds
    assert any("mesh_ep" in own for own in kinds), "experts are shared"
    assert any(job.kept for job in jobs), "recordings begin and end at other calls"
