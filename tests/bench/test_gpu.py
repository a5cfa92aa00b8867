"""What-ifs from steps recorded on one H100, held to the steps that were measured afterwards.

A recording of 32 samples is one in which the host waits for room in the launch queue most of the
time; its library names kernels as CUDA 13 does, and autocast casts the weights in each step.
"""

import pytest

from bench.gpu.score import RECORDED, find_recording, list_edits, list_pairs, predict_pair
from tests.thinned import thinned


@pytest.mark.parametrize(
    ("after", "batch", "most_pct"),
    thinned([("base_batch_16", "0.5x", 3), ("base_batch_8", "0.25x", 4), ("base", "0.125x", 4)], 3),
)
def test_fewer_samples_than_recorded(after: str, batch: str, most_pct: float) -> None:
    before = RECORDED / "base_batch_32"
    prediction = predict_pair(before, RECORDED / after, {"batch": batch})
    assert prediction.miss_pct is not None
    assert abs(prediction.miss_pct) < most_pct
    assert prediction.is_held


def test_a_host_that_the_profiler_slowed_down() -> None:
    """One sample was recorded in 44.5 ms and took 37.6 ms without the profiler, bound by its host;
    four keep the GPU busy for 55 ms, with or without."""
    before = RECORDED / "base_batch_1"
    prediction = predict_pair(before, RECORDED / "base", {"batch": "4x"})
    assert prediction.miss_pct is not None
    assert abs(prediction.miss_pct) < 4


@pytest.mark.parametrize(
    ("before", "edits", "after", "most_pct"),
    [
        ("precision_tf32", {"precision": "fp32"}, "precision_fp32", 10),
        ("base", {"graphs": "on"}, "base_graph", 8),
        ("base_checkpointing", {"checkpointing": "off", "batch": "0.25x"}, "base_batch_1", 15),
    ],
)
def test_edits_that_averages_hid(
    before: str, edits: dict[str, str], after: str, most_pct: float
) -> None:
    """PyTorch multiplies single precision on vector units; gradients of a graph stay in memory;
    recomputed layers cost the host more than their launches."""
    prediction = predict_pair(RECORDED / before, RECORDED / after, edits)
    assert prediction.miss_pct is not None and prediction.memory_miss_pct is not None
    assert abs(prediction.miss_pct) < most_pct
    assert abs(prediction.memory_miss_pct) < 6
    assert prediction.is_held


def test_edits_lead_from_one_job_to_the_other() -> None:
    job = {"batch": 4, "seq": 1024, "graph": False, "hidden": 2048}
    assert list_edits(job, job | {"batch": 8, "seq": 512}) == {"batch": "2x", "seq": "512"}
    assert list_edits(job, job | {"hidden": 4096}) is None


def test_pairs_begin_with_recordings() -> None:
    pairs = list(list_pairs(RECORDED))
    assert len(pairs) > 100
    assert all(
        find_recording(before) and (after / "measured.json").is_file() for before, after, _ in pairs
    )


def test_no_pair_leads_to_a_job_with_a_planted_fault() -> None:
    faults = {"base_read_loss", "base_slow_loader", "base_pageable_copy", "base_emptied_cache"}
    assert not faults & {path.name for pair in list_pairs(RECORDED) for path in pair[:2]}
