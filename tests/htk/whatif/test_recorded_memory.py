"""What a recording shows of its memory, of jobs whose truth is known."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from htk.physics.hardware import gpu
from htk.physics.memory import model_size
from htk.physics.training_job import TrainingJob
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.whatif.api import WhatIf, whatif
from htk.whatif.memory import Held
from htk.whatif.parallelism import Sharded
from htk.whatif.recorded_memory import (
    _build_model_size,
    _count_kinds,
    _count_parameters,
    _find_checkpointing,
    _read_capacity,
    _read_shapes,
    _Shapes,
)
from tests.htk.whatif.edits.attention_step import STEP
from tests.htk.whatif.small_step_model import Act, small_model
from tests.tables import make

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
    simulate_job(check_config(job), folder)
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
    "changes",
    [
        {"tensor_parallel": 2},  # as many ranks as share the parameters: what sums which gradients?
        {"context_parallel": 2},
        {"tensor_parallel": 2, "pipeline_parallel": 2, "accumulation": 2, "layers": 4},
    ],
)
def test_sizes_are_those_of_the_whole_model(tmp_path: Path, changes: dict[str, object]) -> None:
    shaped = {"strategy": "ddp", "seq": 1024, "heads": 16, "kv_heads": 16, "vocab": 128000}
    job = replace(JOB, **shaped, **changes)  # type: ignore[arg-type]
    held, size = held_of(tmp_path, job), model_size(job.decoder)
    assert (held.size.layers, held.size.vocab) == (size.layers, size.vocab)
    assert held.size.layer_parameters == pytest.approx(size.layer_parameters, rel=0.01)


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
    simulate_job(check_config(replace(FEW_WORDS, **changes)), tmp_path)  # type: ignore[arg-type]
    truth = json.loads((tmp_path / "truth.json").read_text())
    peak = max(rank["peak_allocated_bytes"] for rank in truth["ranks"])
    before = recorded.stage.memory
    assert before is not None and before.peaks is not None
    assert abs(peak / before.peaks.highest - 1) > 0.02  # it changes
    assert answer["allocated_bytes"] == pytest.approx(peak, rel=0.1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    folder = tmp_path_factory.mktemp("recorded")
    simulate_job(check_config(FEW_WORDS), folder)
    return whatif(str(folder))


@pytest.mark.parametrize(
    ("units", "reduced", "expected"),
    [
        # bytes of two for a parameter: three layers of 100 and some 10 beside them
        ((220, 200, 200, 195), 0, (3, 100, (815 - 600) / 2)),
        ((200, 210, 190), 0, (3, 100, 0)),  # a twentieth more or less is a layer
        ((200, 200, 211), 0, (2, 100, 211 / 2)),
        ((), 1200, (4, 150, 0)),  # nothing tells layers from the rest
    ],
)
def test_parameters_as_units_tell(
    units: tuple[int, ...], reduced: int, expected: tuple[int, float, float]
) -> None:
    now = replace(_sharded(), unit_bytes=units, reduced_bytes=reduced)
    assert _count_parameters(now, 4, 0, 2) == pytest.approx(expected)
    assert _count_parameters(None, 4, 0, 2) == (4, 0, 0)
    assert _count_parameters(replace(_sharded(), unit_bytes=(), reduced_bytes=50), 0, 0, 2) == (
        1,
        25,
        0,
    )
    assert _count_parameters(replace(_sharded(), unit_bytes=(), reduced_bytes=50), 2, 5, 2) == (
        2,
        10,
        5,
    )


def test_sizes_of_a_tensor_parallel_rank_are_those_of_the_whole() -> None:
    """Hidden 64 on two ranks, keys 16: attention 2 · 64 · 80; three matrices of 64 by 100 left."""
    layer = 2 * 64 * 80 + 3 * 64 * 100
    now = replace(_sharded(), unit_bytes=(layer,) * 5)  # two bytes each, a half of the parameters
    shapes = _Shapes(5, 30, 10, width=32, kv_width=8, heads=4, vocab=500)
    size = _build_model_size(now, shapes, TrainingJob(tensor=2), 0)
    assert (size.layers, size.hidden, size.heads, size.vocab) == (5, 64, 8, 1000)
    assert (size.layer_parameters, size.root_parameters) == (layer, 0)
    assert size.inner_width == pytest.approx(64 + 2 * 16 + 64 + 4 * 100)
    plain = _build_model_size(
        now, replace(shapes, gated=False), TrainingJob(tensor=2), 0
    )  # two of 64 by 150
    assert plain.inner_width == pytest.approx(64 + 2 * 16 + 64 + 2 * 150)
    usual = _build_model_size(
        None, shapes, TrainingJob(tensor=2), 0
    )  # no unit tells: 8/3 of the width
    assert usual.inner_width == pytest.approx(64 + 2 * 16 + 64 + 4 * 64 * 8 / 3)
    assert (
        _build_model_size(None, replace(shapes, gated=False), TrainingJob(tensor=2), 0).inner_width
        == 160 + 2 * 4 * 64
    )


def test_an_embedding_is_no_larger_than_what_is_in_no_layer() -> None:
    now = replace(_sharded(), unit_bytes=(200, 200, 200, 700))
    shapes = _Shapes(3, 30, 10, width=4, kv_width=4, heads=2, vocab=50)
    assert _build_model_size(now, shapes, TrainingJob(), 0).embedding_parameters == 4 * 50
    assert (
        _build_model_size(now, replace(shapes, vocab=500), TrainingJob(), 0).embedding_parameters
        == 350
    )


def _sharded() -> Sharded:
    return Sharded("full_shard", 8, 8, (), 0)


@pytest.mark.parametrize(
    ("again", "kind"),
    [((), "none"), (("mm",), "selective"), (("mm", "attend"), "full"), (("attend",), "full")],
)
def test_what_runs_again_tells_the_checkpointing(again: tuple[str, ...], kind: str) -> None:
    acts = [Act("attend", 9, family="attention"), Act("mm", 9), Act("opt", 9, family="optimizer")]
    acts += [
        replace(act, name=f"{act.name}2", backward=True, recomputed=True)
        for act in acts
        if act.name in again
    ]
    assert _find_checkpointing(small_model(acts)) == kind
    copies = Act("copy", 5, kind="memory", lane="copy", recomputed=True)
    alone = [*acts[:3], copies]
    assert _find_checkpointing(small_model(alone)) == "none", "copies compute nothing"


def test_shapes_tell_layers_widths_and_words() -> None:
    """Two layers of 8 heads of 64 over 2 sequences of 512 tokens; an output of 32000 words."""
    attend = "aten::_scaled_dot_product_flash_attention"  # heads, then the length
    layers = [replace(act, op=attend) if act.name in ("a0", "a1") else act for act in STEP]
    output = Act("out", 9, op="aten::mm", dims="[[1024, 512], [512, 32000]]")
    gate = Act("gate", 9, family="elementwise", op="aten::silu", dims="[[1024, 1376]]")
    found = _read_shapes(small_model([*layers, output, gate]))
    assert found == _Shapes(2, 1024, 512, 512, 512, 8, 32000, gated=True, flash=True)
    softmax = Act("soft", 9, family="softmax", op="aten::_softmax", dims="[[2, 8, 512, 512]]")
    narrow = Act("out", 9, op="aten::addmm", dims="[[512], [1024, 512], [512, 2048]]")
    plain = _read_shapes(small_model([*layers, softmax, narrow]))
    assert plain == _Shapes(2, 1024, 512, 512, 512, 8, 0, gated=False, flash=False)
    words = Act("out", 9, op="aten::mm", dims="[[1024, 512], [512, 2049]]")
    assert _read_shapes(small_model([*layers, words])).vocab == 2049, (
        "more than four times the width"
    )
    again = [replace(act, name=f"{act.name}2", recomputed=True) for act in layers[:4]]
    assert _read_shapes(small_model([*layers, *again])).layers == 2
    bare = [replace(act, dims=None) for act in layers]
    assert _read_shapes(small_model(bare)) == _Shapes()
    swapped = _read_shapes(
        small_model(STEP)
    )  # of these operators the length comes before the heads
    assert (swapped.length, swapped.heads) == (8, 512)


def test_memory_of_a_gpu_as_recorded_else_by_its_name() -> None:
    def ranks(*rows: tuple[str | None, str | None]) -> pa.Table:
        listed = [{"device_name": name, "device_properties": text} for name, text in rows]
        return make("ranks", listed)

    h100 = "NVIDIA H100 80GB HBM3"
    assert _read_capacity(ranks((h100, json.dumps([{"totalGlobalMem": 85}])))) == 85
    assert _read_capacity(ranks((h100, None))) == gpu("h100").memory_bytes
    assert _read_capacity(ranks((None, "broken"), (h100, "[]"))) == gpu("h100").memory_bytes
    assert _read_capacity(ranks((None, None))) is None


def test_operators_and_shapes_are_told_once_in_the_order_of_their_last() -> None:
    told = [
        ("b", "[[2]]"),
        ("a", None),
        ("b", "[[2]]"),
        (None, "[[3]]"),
        ("a", None),
        ("b", "[[4]]"),
    ]
    model = small_model([Act("k", 10, op=op, dims=dims) for op, dims in told])
    rows = np.array([0, 1, 2, 3, 5], np.int64)
    assert _count_kinds(model, rows) == [
        ("a", None, 1),
        ("b", "[[2]]", 2),
        ("", "[[3]]", 1),
        ("b", "[[4]]", 1),
    ]
    assert _count_kinds(model, rows[:0]) == []
