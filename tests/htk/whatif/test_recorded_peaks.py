"""Peaks of the passes and of the optimizer, and what changes make of each, worked out by hand."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.schema import DERIVED, TABLES
from htk.physics.hardware import gpu
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.whatif.api import whatif
from htk.whatif.recorded_peaks import PeakChange, RecordedPeaks, recorded_peaks
from tests.tables import make
from tests.thinned import thinned

CPU, CUDA, HIP, PRIVATE = 0, 1, 6, 20
EVENTS = [  # type, rank, device, bytes allocated
    (CPU, 0, 0, 999), (CUDA, 0, 0, 50), (CUDA, 0, 0, 0), (CUDA, 0, 0, 30), (CUDA, 0, 1, 80),
    (CUDA, 0, 1, 70), (CUDA, 2, 1, 20), (HIP, 0, 1, 75), (PRIVATE, 0, 0, 60), (CUDA, 0, 1, None),
]  # fmt: skip
NOTHING = {name: schema.empty_table() for name, schema in {**TABLES, **DERIVED}.items()}


def peaks_of(rows: list[tuple[int, int, int, int | None]]) -> tuple[float, float] | None:
    """Return the least and the most that was held, without addresses of blocks."""
    names = ("device_type", "rank", "device", "allocated_bytes")
    events = [{"name": "[memory]", **dict(zip(names, row, strict=True))} for row in rows]
    memory: pa.Table = make("memory", events)
    found = recorded_peaks(NOTHING | {"memory": memory}, None)
    return None if found is None else (found.static, found.highest)


def test_the_peak_is_of_the_fullest_gpu_and_the_least_of_the_same() -> None:
    assert peaks_of(EVENTS) == (70, 80)
    assert peaks_of([(HIP, 1, 3, 7), (HIP, 1, 3, 9)]) == (7, 9)
    assert peaks_of([(PRIVATE, 1, 3, 7)]) == (7, 7)
    for nothing in ([], [(CPU, 0, 0, 5)], [(CUDA, 0, 0, None)], [(CUDA, 0, 0, 0)]):
        assert peaks_of(nothing) is None


# 100 stay; 10 of casts; 40 of activations at the end of forward; 20 of gradients, beside which the
# optimizer takes 25 more for a while.
STEP = RecordedPeaks(
    held=np.array([110.0, 150.0, 132.0, 145.0]),
    growing=np.array([0.0, 40.0, 2.0, 0.0]),
    gradients=np.array([0.0, 0.0, 20.0, 20.0]),
    casts=np.array([10.0, 10.0, 10.0, 0.0]),
    updates=np.array([False, False, False, True]),
)


@pytest.mark.parametrize(
    ("change", "peak"),
    [
        (PeakChange(), 150),
        (PeakChange(growing=2.0), 190),
        (PeakChange(growing=0.25), 145),  # the optimizer's, which no batch makes smaller
        (PeakChange(growing=0.25, optimizer=0.1), 130.5),  # then the end of the backward pass
        (PeakChange(casts=0.0), 145),
        (PeakChange(state=-50.0), 100),
        (PeakChange(accumulates=True), 170),  # gradients of the micro-batch before
    ],
)
def test_changes_of_a_peak(change: PeakChange, peak: float) -> None:
    assert STEP.static == 100
    assert STEP.after(change) == pytest.approx(peak)


def test_one_of_several_micro_batches_has_no_gradients_before_it() -> None:
    """Held at the end of the second forward pass: 20 of gradients beside the rest."""
    several = RecordedPeaks(
        held=np.array([110.0, 150.0, 132.0, 170.0, 145.0]),
        growing=np.array([0.0, 40.0, 2.0, 40.0, 0.0]),
        gradients=np.array([0.0, 0.0, 20.0, 20.0, 20.0]),
        casts=np.array([10.0, 10.0, 10.0, 10.0, 0.0]),
        updates=np.array([False, False, False, False, True]),
    )
    assert several.highest == 170
    assert several.after(PeakChange(accumulates=False)) == 150


def drawn_job(chance: random.Random) -> Config:
    """Return a small job of any layout."""
    tensor = chance.choice([1, 1, 2])
    return Config(
        model="drawn", layers=chance.choice([2, 3, 4]), hidden=1024, heads=8, ffn=4096, vocab=8000,
        gpu="a100-80gb", nodes=1, gpus_per_node=4, micro_batch=chance.choice([1, 2, 4]),
        seq=chance.choice([512, 1024]), strategy=chance.choice(["ddp", "ddp", "shard_grad_op"]),
        tensor_parallel=tensor, context_parallel=1 if tensor > 1 else chance.choice([1, 2]),
        precision=chance.choice(["bf16", "bf16", "tf32"]),
        steps=2, stacks=False,
    )  # fmt: skip


def planned(config: Config) -> PlannedJob:
    """Return the same job as it is planned: kernels of PyTorch, whose gates are kept."""
    return PlannedJob(
        config.decoder, gpu(config.gpu), 1, 4, config.micro_batch, config.seq,
        strategy=config.strategy,
        tensor_parallel=config.tensor_parallel, context_parallel=config.context_parallel,
        precision="bf16" if config.precision == "bf16" else "fp32",
        kernels="compiled", sequence_parallel=False,
    )  # fmt: skip


def check_plan_against_recording(folder: Path, config: Config) -> None:
    """Hold the peak that a plan gives to that of the job's recording, within 2 %."""
    simulate_job(config, folder)
    row: dict[str, Any] = whatif(folder).batch("1x").run().to_pylist()[0]
    reckoned = plan(planned(config)).memory
    assert row["allocated_bytes"] == pytest.approx(reckoned.held, rel=0.02), config
    assert row["peak_memory_bytes"] == pytest.approx(reckoned.total, rel=0.02), config


@pytest.mark.parametrize("seed", thinned(range(4), 4))
def test_a_plan_and_a_recording_of_one_job_agree(tmp_path: Path, seed: int) -> None:
    check_plan_against_recording(tmp_path, drawn_job(random.Random(seed)))


@pytest.mark.nightly
def test_plans_and_recordings_of_thirty_jobs_agree(tmp_path: Path) -> None:
    chance = random.Random(11)
    for number in range(30):
        check_plan_against_recording(
            tmp_path / str(number), replace(drawn_job(chance), seed=number)
        )
