"""A recording is read into the job that it was simulated as."""

from pathlib import Path
from typing import Any

import pytest

from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.whatif.api import WhatIf, whatif
from tests.thinned import thinned

SIZES = {
    "model": "read", "layers": 4, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 8000,
    "gpu": "a100-80gb", "nodes": 1, "gpus_per_node": 4, "strategy": "ddp", "micro_batch": 2,
    "seq": 1024, "steps": 3, "stacks": False,
}  # fmt: skip


def recorded(folder: Path, **other: Any) -> WhatIf:
    simulate_job(Config(**{**SIZES, **other}), folder)
    return whatif(folder)


@pytest.mark.parametrize(
    "other",
    thinned(
        [
            {},
            {"tensor_parallel": 2},
            {"tensor_parallel": 2, "sequence_parallel": True},
            {"context_parallel": 2},
            {"context_parallel": 2, "context_exchange": "messages"},
            {"strategy": "full_shard"},
            {"strategy": "full_shard", "tensor_parallel": 2},
            {"accumulation": 3},
        ]
    ),
)
def test_layout_and_batch_are_those_of_the_job(tmp_path: Path, other: dict[str, Any]) -> None:
    """Tokens a second are samples × length of all data-parallel groups over the step."""
    asked = recorded(tmp_path, **other)
    job, config = asked.stage.job, Config(**{**SIZES, **other})
    assert (job.ranks, job.tensor, job.context, job.pipeline, job.expert) == (
        4, config.tensor_parallel, config.context_parallel, 1, 1,
    )  # fmt: skip
    assert (job.layers, job.heads, job.kv_heads) == (4, 8, 8)
    assert (job.micro_batch, job.micro_batches, job.seq) == (2, config.accumulation, 1024)
    assert (job.strategy, job.sequence_parallel) == (config.strategy, config.sequence_parallel)
    assert (job.precision, job.gpu and job.gpu.name) == ("bf16", "a100-80gb")
    groups = 4 // config.tensor_parallel // config.context_parallel
    row = asked.batch("1x").run().to_pylist()[0]
    per_step = groups * 2 * 1024 * config.accumulation
    assert row["tokens_per_s"] == pytest.approx(per_step / row["step_time_ns"] * 1e9)
