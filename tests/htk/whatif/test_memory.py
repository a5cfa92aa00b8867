"""Peak memory after an edit: state that moves, activations that grow, the recording as anchor."""

from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.memory import (
    Layout,
    ModelSize,
    add_allocator_share,
    compute_peak_memory,
    p_oom,
    whole_layer,
)
from htk.physics.training_job import TrainingJob
from htk.whatif.edited_job import edited_job
from htk.whatif.memory import Held, PredictedPeak, layout_of, predict_peak
from htk.whatif.recorded_peaks import RecordedPeaks
from tests.htk.whatif.named_jobs import started

GB = 1e9
# 8 layers of half a billion parameters and half a billion beside them: 72 GB of state on 4 ranks.
SIZE = ModelSize(8, 0.5e9, 0.5e9, 0.25e9, 4096, 32, 4 * 4096, 60000, 40000, 0)
LAYOUT = Layout("full_shard", 4, micro_batch=2, seq=1024)
BY_MODEL = compute_peak_memory(SIZE, LAYOUT)
# 18 GB stay; gathered are two layers, the rest, and two layers' gradients: 5 GB.
HELD = Held(SIZE, LAYOUT, 80 * GB, RecordedPeaks.single(18 * GB, 33 * GB))


JOB = TrainingJob(
    ranks=4, node=4, tensor=1, pipeline=1, context=1, expert=1, strategy="full_shard", shards=4,
    micro_batch=2, micro_batches=1, seq=1024, checkpointing="none", layers=8, heads=32,
)  # fmt: skip


def asked(held: Held, *edits: tuple[str, str]) -> PredictedPeak | None:
    job = replace(JOB, checkpointing=held.layout.checkpointing)
    return predict_peak(held, edited_job(job, edits), 1.0)


def peak(*edits: tuple[str, str], held: Held = HELD) -> float:
    found = asked(held, *edits)
    assert found is not None
    return found.allocated


def chance(found: PredictedPeak | None) -> float:
    assert found is not None
    return found.p_oom or 0.0


def test_the_example_is_what_it_says() -> None:
    assert BY_MODEL.state == 18 * GB + 5 * GB
    assert HELD.activations == 10 * GB


def test_nothing_changes_without_an_edit() -> None:
    assert peak() == 33 * GB


def test_activations_grow_with_the_batch() -> None:
    assert peak(("batch", "3x")) == pytest.approx(53 * GB)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (("sharding", "ddp"), 72 * GB + 10 * GB),  # 16 bytes of 4.5e9 on each
        (("sharding", "shard_grad_op"), 18 * GB + 9 * GB + 2 * GB + 10 * GB),
        (("sharding", "hybrid_shard:1"), 72 * GB + 10 * GB),
        (("sharding", "hybrid_shard:2"), 36 * GB + 5 * GB + 10 * GB),
        (("sharding", "zero1"), (4 + 16 / 4) * 4.5 * GB + 10 * GB),
        (("sharding", "zero2"), (2 + 18 / 4) * 4.5 * GB + 2 * GB + 10 * GB),
        (("world", "8"), 9 * GB + 5 * GB + 10 * GB),
        (("world", "2x4"), 9 * GB + 5 * GB + 10 * GB),
        (("accumulation", "4"), 33 * GB),
    ],
)
def test_shards_and_what_is_gathered(edit: tuple[str, str], expected: float) -> None:
    assert peak(edit) == pytest.approx(expected)


def test_what_the_parts_miss_of_the_recorded_peak_stays() -> None:
    """Activations are no less than four fifths of what the model makes of them."""
    layers = 8 * whole_layer(SIZE, LAYOUT)
    crowded = replace(
        HELD, peaks=RecordedPeaks.single(18 * GB, 18 * GB + layers)
    )  # gathered units would take more than that
    assert crowded.activations == pytest.approx(0.8 * layers)
    assert peak(held=crowded) == pytest.approx(18 * GB + layers)
    assert peak(("batch", "2x"), held=crowded) == pytest.approx(18 * GB + 1.8 * layers)
    full = replace(
        HELD, peaks=RecordedPeaks.single(18 * GB, 18 * GB + 0.5 * layers)
    )  # no more than there is
    assert full.activations == pytest.approx(0.5 * layers)


def test_full_checkpointing_keeps_inputs_of_layers_and_one_layer() -> None:
    """Eight layers against eight inputs and one layer; off again is where it came from."""
    layer, entry = whole_layer(SIZE, LAYOUT), 2 * 2048 * 4096
    less = 23 * GB + 10 * GB * (8 * entry + layer) / (8 * layer)
    assert peak(("checkpointing", "on")) == pytest.approx(less)
    assert peak(("checkpointing", "off")) == 33 * GB
    again = replace(HELD, layout=replace(LAYOUT, checkpointing="full"))
    more = 23 * GB + 10 * GB * 8 * layer / (8 * entry + layer)
    assert peak(("checkpointing", "off"), held=again) == pytest.approx(more)
    assert peak(("checkpointing", "on"), held=again) == 33 * GB


def test_selective_checkpointing_lies_between() -> None:
    none, some, full = (peak(("checkpointing", how)) for how in ("off", "selective", "on"))
    assert full < some < none


def test_tensor_parallelism_splits_state_and_what_lies_between_products() -> None:
    """Two ranks of a group; the edit keeps the micro-batch and says that a rank keeps half."""
    split = layout_of(edited_job(JOB, [("tp", "2")]), LAYOUT)
    assert (split.tensor, split.shards, split.micro_batch) == (2, 2, 2)
    then = compute_peak_memory(SIZE, split)
    ratio = then.activations / BY_MODEL.activations
    assert 0.5 < ratio < 1  # norms are whole on both
    expected = 33 * GB + then.state - BY_MODEL.state + 10 * GB * (ratio - 1)
    assert peak(("tp", "2")) == pytest.approx(expected)
    assert peak(("sp", "on"), ("tp", "2")) < expected


def test_context_parallelism_halves_activations_alone() -> None:
    assert layout_of(edited_job(JOB, [("cp", "2")]), LAYOUT).micro_batch == 2
    assert peak(("cp", "2")) == pytest.approx(23 * GB + 5 * GB)


def test_stages_hold_a_part_of_the_layers_and_more_micro_batches() -> None:
    staged = layout_of(edited_job(JOB, [("pp", "2")]), LAYOUT)
    assert (staged.pipeline, staged.shards, staged.micro_batches) == (2, 2, 2)


def test_the_world_of_a_tensor_parallel_job_counts_its_groups() -> None:
    split = replace(JOB, ranks=8, tensor=2)
    assert edited_job(split, [("world", "16")]).shards == 8
    assert edited_job(split, [("world", "2x8")]).shards == 8


def test_the_probability_not_to_fit_is_even_where_the_peak_fills_what_is_free() -> None:
    free = (80 * GB - BY_MODEL.reserved) / add_allocator_share(1.0)
    samples = 2 * (free - 23 * GB) / (10 * GB)
    assert chance(predict_peak(HELD, replace(JOB, micro_batch=samples), 1.0)) == pytest.approx(0.5)
    assert chance(asked(HELD)) < 1e-6
    assert chance(asked(HELD, ("batch", "9x"))) > 0.99


def test_another_gpu_has_another_size() -> None:
    """Of 24 GB, on which 33 do not fit."""
    assert chance(asked(HELD, ("hardware", "a10"))) > 0.99
    large = replace(HELD, capacity=24 * GB)
    assert chance(asked(large, ("hardware", "h200"))) < 1e-6


def test_experts_that_move_leave_memory_unknown() -> None:
    assert asked(HELD, ("ep", "4")) is None


def test_an_unknown_gpu_has_no_probability() -> None:
    nothing = ModelSize(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    held = Held(nothing, Layout("ddp"), None, RecordedPeaks.single(1.0, 2.0))
    found = predict_peak(held, TrainingJob(), 2.0)
    assert found is not None and (found.allocated, found.p_oom) == (3, None)


def test_without_allocations_the_model_s_own_peak_is_the_answer_and_doubt_is_wider() -> None:
    reckoned = replace(HELD, peaks=None)
    found = asked(reckoned, ("batch", "5x"))
    assert found is not None
    unsure = found.p_oom
    by_model = compute_peak_memory(SIZE, replace(LAYOUT, micro_batch=10)).total
    assert found.total == by_model
    assert unsure is not None
    assert abs(unsure - 0.5) < abs(p_oom(by_model, 80 * GB) - 0.5)
    assert gpu("a100-80gb").memory_bytes == pytest.approx(85.05e9, rel=1e-3)


def test_what_is_split_already_is_split_by_the_ratio() -> None:
    """Two ways of tensor, context and pipeline parallelism become four."""
    now = TrainingJob(
        ranks=64, node=8, tensor=2, pipeline=2, context=2, strategy="hybrid_shard", shards=4,
        micro_batch=3, micro_batches=5,
    )  # fmt: skip
    assert (now.replicas, now.data_ranks) == (8, 16)
    tensor = layout_of(edited_job(now, [("tp", "4")]), LAYOUT)
    assert (tensor.tensor, tensor.micro_batch, tensor.micro_batches) == (4, 3, 5)
    assert (tensor.shards, tensor.replicas) == (2, 4), "of 8 data-parallel ranks a node has 2"
    context = layout_of(edited_job(now, [("cp", "4")]), LAYOUT)
    assert (context.context, context.micro_batch, context.shards) == (4, 3, 4)
    staged = layout_of(edited_job(now, [("pp", "4")]), LAYOUT)
    assert (staged.pipeline, staged.micro_batch, staged.micro_batches) == (4, 3, 10)
    assert (staged.shards, staged.replicas) == (4, 2)
    assert edited_job(now, [("sp", "on")]).sequence_parallel


@pytest.mark.parametrize(
    ("node", "ranks", "shards"), [(4, 16, 4), (8, 16, 8), (8, 8, 8), (8, 1, 1)]
)
def test_hybrid_shards_are_of_a_node(node: int, ranks: int, shards: int) -> None:
    replicas = replace(JOB, node=node, ranks=ranks, strategy="ddp", shards=1)
    assert edited_job(replicas, [("sharding", "hybrid_shard")]).shards == shards
    of_two = edited_job(replicas, [("sharding", "hybrid_shard:2"), ("world", "2x6")])
    assert (of_two.shards, of_two.data_ranks, of_two.node) == (2, 12, 6)


def test_units_that_are_gathered_ahead_are_held() -> None:
    """Each is a layer's parameters in two bytes."""
    sharded = started("sharded")
    assert sharded.memory is not None
    # Few words: at the peak of many, the loss, no layer is gathered.
    size = replace(sharded.memory.size, vocab=1)
    held = replace(sharded.memory, size=size)
    peaks = [predict_peak(held, replace(sharded.job, ahead=depth), 1.0) for depth in (0, 1, 2)]
    none, one, two = (peak.allocated if peak else 0.0 for peak in peaks)
    layer = 2 * size.layer_parameters
    assert one - none == pytest.approx(layer)
    assert two - one == pytest.approx(layer)


def test_stages_that_are_not_known_leave_memory_unknown() -> None:
    unknown = replace(JOB, pipeline=None)
    assert predict_peak(HELD, replace(unknown, fused_loss=True), 1.0) is None
    assert predict_peak(HELD, replace(unknown, micro_batch=6), 3.0) is not None


@pytest.mark.parametrize(
    ("edit", "saved"),
    [
        (("optimizer", "8bit"), 6 * 4.5 * GB / 4),  # moments of two bytes in place of eight
        (("lora", "8"), (1 - 2 * 8 * 40000 * 8 / 4.5e9) * 14 * 4.5 * GB / 4),
    ],
)
def test_states_of_other_optimizers(edit: tuple[str, str], saved: float) -> None:
    buffers = 2 * GB if edit[0] == "lora" else 0.0  # two layers' gradients are not whole either
    assert peak(edit) == pytest.approx(33 * GB - saved - buffers, rel=0.002)
