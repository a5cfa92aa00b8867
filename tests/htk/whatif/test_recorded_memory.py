"""What a recording shows of its memory, of jobs whose truth is known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from htk.models.memory import model_size
from htk.simulate.config import Config, checked
from htk.simulate.job import simulate
from htk.whatif.api import WhatIf, whatif
from htk.whatif.memory import Held

JOB = Config(
    model="llama2-7b",
    layers=3,
    hidden=512,
    heads=8,
    kv_heads=2,
    ffn=1408,
    vocab=4096,
    nodes=1,
    gpus_per_node=4,
    micro_batch=3,
    seq=256,
    steps=2,
)

FEW_WORDS = replace(JOB, vocab=512)  # the simulator's allocator holds no logits


def held_of(folder: Path, job: Config) -> Held:
    simulate(checked(job), folder)
    held = whatif(str(folder)).stage.memory
    assert held is not None
    return held


def test_sizes_and_layout_are_those_of_the_job(tmp_path: Path) -> None:
    held, size = held_of(tmp_path, JOB), model_size(JOB.decoder)
    assert (held.size.layers, held.size.hidden, held.size.heads) == (3, 512, 8)
    assert held.size.layer_parameters == pytest.approx(size.layer_parameters, rel=0.01)
    assert held.size.root_parameters == pytest.approx(size.root_parameters, rel=0.02)
    # heads of keys and values are repeated before attention sees them
    assert held.size.inner_width == pytest.approx(size.inner_width, rel=0.05)
    assert held.size.product_width == pytest.approx(size.product_width, rel=0.06)
    assert held.size.vocab == 4096
    layout = held.layout
    assert (layout.strategy, layout.shards, layout.replicas) == ("full_shard", 4, 1)
    assert (layout.micro_batch, layout.seq, layout.checkpointing) == (3, 256, "none")
    assert layout.flash


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"checkpointing": True}, {"checkpointing": "full"}),
        ({"strategy": "ddp"}, {"strategy": "ddp", "shards": 1, "replicas": 4}),
        (
            {"strategy": "hybrid_shard", "nodes": 2, "gpus_per_node": 2},
            {"strategy": "hybrid_shard", "shards": 2, "replicas": 2},
        ),
        ({"tensor_parallel": 2, "micro_batch": 8}, {"tensor": 2, "shards": 2, "micro_batch": 8}),
    ],
)
def test_layouts(tmp_path: Path, changes: dict[str, object], expected: dict[str, object]) -> None:
    held = held_of(tmp_path, replace(JOB, **changes))  # type: ignore[arg-type]
    assert {name: getattr(held.layout, name) for name in expected} == expected
    if "tensor_parallel" in changes:  # shapes are those of a half
        assert (held.size.hidden, held.size.heads) == (512, 8)


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("batch", "4x", {"micro_batch": 12}),
        ("sharding", "shard_grad_op", {"strategy": "shard_grad_op"}),
        ("sharding", "ddp", {"strategy": "ddp"}),
        ("checkpointing", "on", {"checkpointing": True}),
        ("world", "8", {"nodes": 2}),
    ],
)
def test_peaks_after_edits_are_those_of_the_job_simulated_so(
    recorded: WhatIf, tmp_path: Path, name: str, value: str, changes: dict[str, object]
) -> None:
    answer = recorded.change(name, value).run().to_pylist()[0]
    simulate(checked(replace(FEW_WORDS, **changes)), tmp_path)  # type: ignore[arg-type]
    truth = json.loads((tmp_path / "truth.json").read_text())
    peak = max(rank["peak_allocated_bytes"] for rank in truth["ranks"])
    before = recorded.stage.memory
    assert before is not None and before.measured is not None
    assert abs(peak / before.measured - 1) > 0.02  # it changes
    assert answer["peak_memory_bytes"] == pytest.approx(peak, rel=0.15)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    folder = tmp_path_factory.mktemp("recorded")
    simulate(checked(FEW_WORDS), folder)
    return whatif(str(folder))
