"""truth.json, which comes from the schedule, against a plain reading of the written files."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.recording.simulate.plant_options import PLANTS
from tests.htk.recording.simulate.reading import read
from tests.thinned import thinned

SMALL = dict(model="own", layers=2, hidden=256, heads=4, kv_heads=2, ffn=512, vocab=1000, seq=128)

jobs = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(["a100-80gb", "h100", "mi300x"]),
        "nodes": st.integers(1, 2),
        "gpus_per_node": st.sampled_from([1, 2, 4]),
        "strategy": st.sampled_from(["ddp", "shard_grad_op", "full_shard", "hybrid_shard"]),
        "fsdp": st.sampled_from([1, 2]),
        "micro_batch": st.integers(1, 3),
        "accumulation": st.integers(1, 2),
        "checkpointing": st.booleans(),
        "steps": st.integers(1, 3),
        "seed": st.integers(0, 99),
        "contention": st.booleans(),
        "synchronous": st.booleans(),
        "precision": st.sampled_from(["bf16", "fp32"]),
        "queue": st.sampled_from([8, 60, 1022]),
        "carry_in": st.sampled_from([0, 7]),
        "cut_last_step": st.booleans(),
        "stagger_us": st.sampled_from([0.0, 300.0, 5000.0]),
        "clock_offset_us": st.sampled_from([0.0, 800.0]),
        "clock_drift_ppm": st.sampled_from([0.0, 20.0]),
        "heavy_tails": st.booleans(),
        "programmatic": st.booleans(),
        "graphs": st.booleans(),
        "sync_records": st.booleans(),
        "metadata": st.booleans(),
        "named_groups": st.booleans(),
        "stacks": st.booleans(),
        "first_step": st.sampled_from([0, 10]),
        "clocks": st.sampled_from(["node", "process"]),
        "plants": st.lists(
            st.sampled_from([p for p in PLANTS if p not in ("missing_rank", "unlinked_launch")]),
            max_size=2,
            unique=True,
        ).map(tuple),
    }
).map(lambda job: job | ({"stagger_us": 0.0, "carry_in": 0} if not job["first_step"] else {}))


@settings(max_examples=settings.default.max_examples // 2)
@given(job=jobs)
def test_the_sidecar_tells_what_the_files_show(job: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate_job(check_config(Config(**SMALL, **job)), Path(folder))
        truth = json.loads((Path(folder) / "truth.json").read_text())
        assert len(truth["ranks"]) == job["nodes"] * job["gpus_per_node"]
        for told in truth["ranks"]:
            _compare(told, read(Path(folder) / f"rank{told['rank']}.pt.trace.json.gz"))


@pytest.mark.parametrize(
    "layout",
    thinned([
        {"gpus_per_node": 4, "tensor_parallel": 2},
        {"gpus_per_node": 4, "pipeline_parallel": 2, "accumulation": 3},
        {"gpus_per_node": 2, "pipeline_parallel": 2, "accumulation": 3, "batched_messages": False},
        {"nodes": 2, "gpus_per_node": 2, "pipeline_parallel": 2, "tensor_parallel": 2,
         "accumulation": 2, "virtual_stages": 2, "layers": 4, "stagger_us": 300.0},
    ]),
    ids=["tensor", "pipeline", "single", "interleaved"],
)  # fmt: skip
def test_the_sidecar_of_a_layout_tells_what_its_files_show(layout: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate_job(check_config(Config(**SMALL | layout)), Path(folder))
        truth = json.loads((Path(folder) / "truth.json").read_text())
        for told in truth["ranks"]:
            _compare(told, read(Path(folder) / f"rank{told['rank']}.pt.trace.json.gz"))


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    def bytes_of(name: str, seed: int) -> dict[str, bytes]:
        simulate_job(check_config(Config(**SMALL, gpus_per_node=2, seed=seed)), tmp_path / name)
        return {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()}

    once, again, other = bytes_of("a", 7), bytes_of("b", 7), bytes_of("c", 8)
    assert set(once) == {"rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz", "truth.json"}
    assert once == again
    assert all(once[name] != other[name] for name in once)


@pytest.mark.parametrize("strategy", ["ddp", "full_shard"])
def test_collectives_are_of_all_ranks_and_add_up(strategy: str, tmp_path: Path) -> None:
    simulate_job(check_config(Config(**SMALL, gpus_per_node=4, strategy=strategy)), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["collectives"]
    for call in truth["collectives"]:
        spans = list(zip(call["start_ns"], call["end_ns"], strict=True))
        latest = max(a for a, _ in spans)
        assert call["wait_ns"] == [min(latest - a, b - a) for a, b in spans]
        parts = zip(call["wait_ns"], call["transfer_ns"], strict=True)
        assert [w + t for w, t in parts] == [b - a for a, b in spans]
        ends = [b for _, b in spans]
        assert latest < min(ends) and max(ends) - min(ends) <= 7000


def _compare(told: dict[str, Any], seen: dict[str, Any]) -> None:
    assert told["window_start_ns"] == seen["window_start_ns"]
    assert told["window_end_ns"] == seen["window_end_ns"]
    if seen["peak_allocated_bytes"]:  # a step that was cut may hold no allocation
        assert told["peak_allocated_bytes"] == seen["peak_allocated_bytes"]
    assert len(told["steps"]) == len(seen["steps"])
    for one, other in zip(told["steps"], seen["steps"], strict=True):
        if not other["peak_allocated_bytes"]:
            other["peak_allocated_bytes"] = one["peak_allocated_bytes"]
        assert {k: one[k] for k in other} == other
        assert sum(one["idle_by_cause_ns"].values()) == one["idle_ns"]
