"""Small simulated jobs by name, each made once, with and without one thing."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline

HYBRID: dict[str, Any] = {"strategy": "hybrid_shard", "nodes": 2}

JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alone": {"gpus_per_node": 1},
    "alone in FSDP": {"gpus_per_node": 1, "strategy": "full_shard"},
    "two micro-batches": {"accumulation": 2},
    "eight micro-batches": {"accumulation": 8},
    "cp 2": {"context_parallel": 2},
    "cp 2 of 8": {"context_parallel": 2, "gpus_per_node": 8},
    "cp 4 of 8": {"context_parallel": 4, "gpus_per_node": 8},
    "tp 2": {"tensor_parallel": 2},
    "tp 2 of 8": {"tensor_parallel": 2, "gpus_per_node": 8},
    "tp 4 of 8": {"tensor_parallel": 4, "gpus_per_node": 8},
    "tp 4": {"tensor_parallel": 4},
    "tp 4 sp": {"tensor_parallel": 4, "sequence_parallel": True},
    "two stages": {"pipeline_parallel": 2, "accumulation": 2, "gpus_per_node": 2},
    "two stages, four micro-batches": {
        "pipeline_parallel": 2,
        "accumulation": 4,
        "gpus_per_node": 2,
    },
    "two stages, wrapped for FSDP": {
        "pipeline_parallel": 2,
        "accumulation": 2,
        "gpus_per_node": 2,
        "strategy": "full_shard",
    },
    "two stages of four ranks, sharded": {
        "pipeline_parallel": 2,
        "accumulation": 2,
        "strategy": "full_shard",
    },
    "pp 2": {"pipeline_parallel": 2, "accumulation": 4},
    "checkpointed": {"checkpointing": True},
    "tf32": {"precision": "tf32"},
    "attention in parts": {"attention": "materialised"},
    "tf32, attention in parts": {"attention": "materialised", "precision": "tf32"},
    "attention in parts, longer": {"attention": "materialised", "seq": 2048},
    "fused loss": {"fused_loss": True},
    "optimizer in parts": {"optimizer": "adam-foreach"},
    "8-bit optimizer": {"optimizer": "adam-8bit"},
    "adapters": {"lora_rank": 8},
    "checkpointed adapters": {"lora_rank": 8, "checkpointing": True},
    "tf32 adapters": {"lora_rank": 8, "precision": "tf32"},
    "tf32, sharded": {"precision": "tf32", "strategy": "full_shard"},
    "four micro-batches": {"accumulation": 4},
    "four micro-batches, each reduced": {"accumulation": 4, "no_sync": False},
    "four micro-batches, sharded": {"accumulation": 4, "strategy": "full_shard"},
    "longer": {"seq": 2048},
    "sharded": {"strategy": "full_shard"},
    "hybrid": HYBRID | {"gpus_per_node": 2},
    "hybrid in larger nodes": HYBRID,
    "hybrid in four nodes": HYBRID | {"nodes": 4, "gpus_per_node": 2},
    "tp 2, hybrid": HYBRID | {"tensor_parallel": 2},
    "pp 2, hybrid": HYBRID | {"gpus_per_node": 2, "pipeline_parallel": 2, "accumulation": 4},
    "tp 2, pp 2, hybrid": HYBRID
    | {"tensor_parallel": 2, "pipeline_parallel": 2, "accumulation": 4},
}


@cache
def started(name: str) -> Baseline:
    job = Config(
        model="small", layers=4, hidden=1024, heads=8, ffn=4096, vocab=8000, gpu="a100-80gb",
        nodes=1, gpus_per_node=4, strategy="ddp", micro_batch=8, seq=1024, steps=3, stacks=False,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        simulate_job(check_config(replace(job, **JOBS[name])), Path(folder))
        return build_baseline(open_trace(folder, OpenOptions(cache=False)).tables)


def hold_to_twin(
    start: Baseline, edit: tuple[str, str], twin: Baseline, *, step_rel: float
) -> None:
    """Hold what an edit makes of a job, in time and in memory, to the job simulated with it."""
    answer = predict_answer(start, [edit])
    assert answer.step_ns == pytest.approx(twin.step_ns, rel=step_rel)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None and low <= twin.step_ns <= high
    assert answer.peak is not None and twin.memory is not None
    assert twin.memory.peaks is not None
    assert answer.peak.allocated == pytest.approx(twin.memory.peaks.highest, rel=0.02)
