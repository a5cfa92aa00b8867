"""The least GPUs that hold a model."""

import pytest

from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.least import least_gpus
from htk.planning.plan.step import plan


def test_how_many_40_gb_gpus_train_70b_in_16_bit() -> None:
    """16 bytes a parameter are 1.10 TB: 28 of 40 GB hold that alone."""
    job = PlannedJob(decoder("llama2-70b"), gpu("a100-40gb"), 8, 8, 1, 2048, checkpointing="full")
    assert job.model.parameters == pytest.approx(69e9, rel=0.01)
    needed = least_gpus(job)
    assert needed is not None
    assert 28 < needed < 64
    without = PlannedJob(job.model, job.gpu, 8, 8, 1, 2048)
    assert least_gpus(without) is None  # activations alone take 54 GB


def test_least_gpus_fit_and_one_less_does_not() -> None:
    model, device = decoder("llama2-13b"), gpu("a100-80gb")
    needed = least_gpus(PlannedJob(model, device, 1, 8, 1, 2048))
    assert needed is not None

    def probability(gpus: int) -> float:
        return plan(PlannedJob(model, device, 1, gpus, 1, 2048)).p_oom

    assert probability(needed) <= 0.5 < probability(needed - 1)
