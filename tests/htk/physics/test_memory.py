"""Memory of a step: by hand, by what was published, and by what must hold of any model."""

from dataclasses import replace

import pytest

from htk.physics.decoder import Decoder, StateSpace
from htk.physics.hardware import gpu
from htk.physics.memory import (
    FRAGMENTATION,
    Layout,
    add_allocator_share,
    compute_peak_memory,
    in_flight,
    kept_of_layer,
    layer_input,
    model_size,
    p_oom,
    stage_memory,
    whole_layer,
)
from htk.physics.presets import decoder

GIB = 2**30
LLAMA_7B = model_size(decoder("llama2-7b"))


@pytest.mark.parametrize(
    ("batch", "checkpointing", "fits"),
    [(8, "none", True), (64, "none", False), (64, "full", True)],
)
def test_llama2_7b_on_eight_gpus_of_80_gb(batch: int, checkpointing: str, fits: bool) -> None:
    """A public run took micro-batches of 64 at 512 tokens, with full checkpointing."""
    layout = Layout(shards=8, micro_batch=batch, seq=512, checkpointing=checkpointing)
    assert (compute_peak_memory(LLAMA_7B, layout).total < gpu("a100-80gb").memory_bytes) == fits


# torchtitan's benchmarks, llama3_h100_202412_torchtitan.md: Llama 3.1 8B, FSDP2, 2 × 8192 tokens,
# selective checkpointing by operator, eager. GiB that the allocator reserved.
@pytest.mark.parametrize(("ranks", "gib"), [(8, 82.4), (128, 67.0)])
def test_peaks_that_torchtitan_published(ranks: int, gib: float) -> None:
    layout = Layout(shards=ranks, micro_batch=2, seq=8192, checkpointing="selective")
    assert compute_peak_memory(
        model_size(decoder("llama3-8b")), layout
    ).allocated / GIB == pytest.approx(gib, rel=0.04)


# Aleph Alpha's sweep of layouts (arXiv:2311.05610): LLaMA 13B on 64 A100 of 80 GB, 2048 tokens,
# FlashAttention-2, fused norms, no checkpointing; micro-batch, tensor, pipeline; ran out?
@pytest.mark.parametrize(
    ("micro_batch", "tensor", "pipeline", "ran_out"),
    [(8, 2, 2, True), (8, 2, 1, True), (4, 1, 2, True), (2, 2, 1, False), (2, 2, 2, False)],
)
def test_layouts_that_ran_or_ran_out(
    micro_batch: int, tensor: int, pipeline: int, ran_out: bool
) -> None:
    data = 64 // (tensor * pipeline)
    layout = Layout(
        "zero1",
        data,
        tensor=tensor,
        pipeline=pipeline,
        micro_batch=micro_batch,
        micro_batches=2048 // (data * micro_batch),
        split_logits=False,
    )
    need = compute_peak_memory(model_size(decoder("llama2-13b", vocab=128000)), layout)
    assert (need.total > gpu("a100-80gb").memory_bytes) == ran_out


# Korthikanti et al. (2022), tables 1 and 2: bytes of a layer, over tokens times hidden width.
@pytest.mark.parametrize(
    ("layout", "bytes_of_an_element"),
    [
        (Layout(flash=False), 34 + 5 * 96 * 2048 / 12288),
        (Layout(tensor=8, flash=False), 10 + 24 / 8 + 5 * 96 * 2048 / (12288 * 8)),
        (Layout(tensor=8, flash=False, sequence_parallel=True), 34 / 8 + 5 * 96 * 2048 / 98304),
        (Layout(tensor=8, sequence_parallel=True), 34 / 8),  # attention recomputed
    ],
)
def test_a_layer_of_gpt_3_keeps_what_korthikanti_counts(
    layout: Layout, bytes_of_an_element: float
) -> None:
    size = model_size(decoder("gpt3-175b"))
    assert whole_layer(size, layout) == pytest.approx(2048 * 12288 * bytes_of_an_element)


def test_a_gated_layer_by_hand() -> None:
    """LLaMA-2 7B, of a token: two norms with their inputs and results 4 · 4096, queries, keys and
    values and attention's result 4 · 4096, four inner tensors of 11008, two bytes each."""
    of_a_token = 2 * (4 * 4096 + 4 * 4096 + 4 * 11008)
    assert whole_layer(LLAMA_7B, Layout(seq=512)) == 512 * of_a_token
    split = 2 * (4 * 4096 + (4 * 4096 + 4 * 11008) / 4)
    assert whole_layer(LLAMA_7B, Layout(seq=512, tensor=4)) == 512 * split


def small(**more: object) -> Decoder:
    shape = {"layers": 4, "hidden": 8, "heads": 2, "kv_heads": 1, "ffn": 16, "vocab": 50}
    return Decoder("small", **(shape | {"head_size": 6} | more))  # type: ignore[arg-type]


def test_widths_of_a_mixture_by_hand() -> None:
    """Queries 12 wide, keys and values 6 each; three layers of four route each token to 2 of 4
    experts of 16, beside one shared of 10; the dense layer is 20 wide. Experts take 3 of 8."""
    mixture = {"experts": 4, "active_experts": 2, "shared_ffn": 10, "dense_layers": 1}
    size = model_size(small(**mixture, dense_ffn=20, expert_input=3))
    ffn = 3 / 4 * (2 * 16 + 10) + 1 / 4 * 20
    assert size.product_input == size.gate_width == ffn
    assert size.outer_width == 4 * 8
    copies = 3 / 4 * 2 * (8 + 3)  # what goes into each expert of a token, and comes out
    assert size.inner_width == 12 + 2 * 6 + 12 + 4 * ffn + copies
    summed = (3 / 4 * 2 - 1) * 8  # the results of further experts
    assert size.product_width == 12 + 2 * 6 + 8 + 2 * ffn + 8 + summed
    assert size.expert_parameters == 3 / 4 * 4 * 3 * 3 * 16
    assert size.embedding_parameters == 50 * 8
    plain = model_size(small(gated=False))
    assert (plain.outer_width, plain.gate_width, plain.product_input) == (5 * 8, 0, 16)
    assert plain.inner_width == 12 + 2 * 6 + 12 + 2 * 16
    assert plain.product_width == 12 + 2 * 6 + 8 + 16 + 8


def test_state_spaces_in_the_place_of_attention_by_hand() -> None:
    """Of six layers one attends and two feed forward: three are of 3 heads of 4, state 5."""
    mixer = StateSpace(heads=3, head_dim=4, groups=1, state=5)
    size = model_size(small(layers=6, state_space=mixer, attention_layers=1, ffn_layers=2))
    projected = 2 * 12 + 2 * 5 + 3
    ffn = 2 / 6 * 16
    attention = 1 / 6 * (2 * 12 + 2 * 6)
    space = 3 / 6 * (2 * projected + 3 * 12)
    assert size.inner_width == pytest.approx(attention + 4 * ffn + space)
    assert size.outer_width == 4 * 8 / 2, "a norm for each layer"


def test_what_norms_that_are_not_fused_keep_and_what_is_kept_narrow() -> None:
    """Of a token: 12 bytes of each element for two norms; in one byte for two what norms give and
    what goes into the last product; activated gates not at all, where they are fused."""
    size, fused = model_size(small()), Layout(seq=10)
    whole = whole_layer(size, fused)
    assert whole_layer(size, replace(fused, fused_norms=False)) - whole == 10 * 12 * 8
    assert whole - whole_layer(size, replace(fused, saved_bytes=1)) == 10 * (2 * 8 + 16)
    assert whole - whole_layer(size, replace(fused, fused_gates=True)) == 10 * 2 * 16
    scores = replace(fused, flash=False)
    assert whole_layer(size, scores) - whole == 10 * 5 * 2 * 10
    assert whole_layer(size, replace(scores, context=2)) == 5 * (whole / 10 + 5 * 2 * 5)


def test_checkpointing_keeps_inputs_or_every_second_result() -> None:
    """Of Llama 3 8B: products give 4096 + 2 · 1024 + 4096 + 2 · 14336 + 4096 elements a token."""
    size = model_size(decoder("llama3-8b"))
    full = Layout(seq=512, checkpointing="full")
    assert kept_of_layer(size, full) == layer_input(size, full) == 512 * 2 * 4096
    products = 4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096
    selective = kept_of_layer(size, replace(full, checkpointing="selective"))
    assert selective == 512 * 2 * (4096 + 4096 + products / 2)


@pytest.mark.parametrize(
    ("split", "of_a_rank"),
    [
        ({}, 3 * 512 * 2 * 4096),
        ({"context": 4}, 3 * 512 * 2 * 4096 / 4),
        ({"tensor": 8}, 3 * 512 * 2 * 4096),  # whole on each rank
        ({"tensor": 8, "sequence_parallel": True}, 3 * 512 * 2 * 4096 / 8),
        ({"tensor": 8, "sequence_parallel": True, "context": 4}, 3 * 512 * 2 * 4096 / 32),
    ],
)
def test_what_goes_into_a_layer_is_split_with_the_sequence(
    split: dict[str, int], of_a_rank: float
) -> None:
    """Two bytes of 4096 elements for each token; with full checkpointing a layer keeps no more."""
    layout = Layout(seq=512, micro_batch=3, checkpointing="full", **split)  # type: ignore[arg-type]
    assert layer_input(LLAMA_7B, layout) == of_a_rank
    need = compute_peak_memory(LLAMA_7B, layout)
    gathered = 4 * layout.tokens * 4096 if layout.sequence_parallel else 0
    working = whole_layer(LLAMA_7B, layout) + gathered
    assert need.activations == pytest.approx(32 * of_a_rank + max(working - need.logits, 0))


def test_a_model_replicated_takes_16_bytes_a_parameter() -> None:
    model = decoder("gpt3-126m")
    need = compute_peak_memory(model_size(model), Layout("ddp", 1, 8, seq=128))
    assert need.state == 16 * model.parameters


@pytest.mark.parametrize(
    ("strategy", "bytes_of_a_parameter"),
    [("ddp", 16), ("zero1", 2 + 2 + 16 / 8), ("zero2", 2 + 18 / 8), ("full_shard", 16 / 8)],
)
def test_stages_of_zero_spread_state_over_ranks(strategy: str, bytes_of_a_parameter: float) -> None:
    """Beside them two layers' gradients and, of full sharding, gathered parameters."""
    need = compute_peak_memory(LLAMA_7B, Layout(strategy, 8, seq=128))
    every = decoder("llama2-7b").parameters
    assert need.state - need.gathered - need.buffers == pytest.approx(bytes_of_a_parameter * every)


def test_more_shards_take_less() -> None:
    size = model_size(decoder("llama2-13b"))
    needs = [compute_peak_memory(size, Layout(shards=n)).total for n in (4, 8, 16, 64)]
    assert needs == sorted(needs, reverse=True)


def test_zero_2_by_hand() -> None:
    """SHARD_GRAD_OP on 8 GPUs: units stay whole from forward to backward; gradients of two layers
    are whole until they are scattered; the rest is spread.

    LLaMA-2 7B has 32 layers of 4 * 4096^2 + 3 * 4096 * 11008 + 2 * 4096 parameters, and
    2 * 32000 * 4096 + 4096 beside them.
    """
    layer, beside = 202_383_360, 262_148_096
    every = 32 * layer + beside
    need = compute_peak_memory(LLAMA_7B, Layout("shard_grad_op", 8, micro_batch=8, seq=512))
    assert need.resident == 16 * every // 8 + 2 * 2 * layer
    assert need.buffers == 2 * 2 * layer
    assert need.gathered == 2 * every
    assert need.parameters == 2 * every // 8 + 2 * every
    assert need.logits == 14 * 8 * 512 * 32000
    assert need.held == need.resident + need.gathered + need.activations + need.logits
    assert (
        need.allocated
        == add_allocator_share(need.held)
        == pytest.approx(need.held * (1 + FRAGMENTATION))
    )


def test_one_gpu_shares_nothing() -> None:
    alone = compute_peak_memory(LLAMA_7B, Layout("ddp", seq=512))
    for strategy in ("shard_grad_op", "full_shard"):
        assert compute_peak_memory(LLAMA_7B, Layout(strategy, seq=512)) == alone


def test_the_first_stage_holds_more_micro_batches_the_last_the_logits() -> None:
    """Eight layers in four stages of two; a step of many micro-batches."""
    plain = Decoder("plain", 8, 1024, 8, 8, 4096, 50000)
    layout = Layout("ddp", pipeline=4, seq=1024, micro_batches=16)
    layer = whole_layer(model_size(plain), layout)
    first = compute_peak_memory(model_size(plain), layout)  # 4 · 2 layers against 2 and the logits
    logits = 14 * 1024 * 50000
    assert 6 * layer < logits
    assert (first.activations, first.logits) == (2 * layer, logits)
    small = model_size(replace(plain, vocab=1000))
    assert (
        compute_peak_memory(small, layout).activations,
        compute_peak_memory(small, layout).logits,
    ) == (8 * layer, 0)
    few = replace(layout, micro_batches=2)
    assert compute_peak_memory(small, few).activations + compute_peak_memory(
        small, few
    ).logits == pytest.approx(4 * layer)


def test_each_way_of_splitting_takes_no_more() -> None:
    """Per rank of a job with the same micro-batch."""
    base = Layout(shards=8, micro_batch=2, seq=4096)
    size = model_size(decoder("llama2-13b"))
    need = compute_peak_memory(size, base).held
    for split in (
        {"tensor": 2, "shards": 4},
        {"context": 2},
        {"checkpointing": "selective"},
        {"checkpointing": "full"},
        {"tensor": 4, "shards": 2, "sequence_parallel": True},
    ):
        assert compute_peak_memory(size, replace(base, **split)).held < need  # type: ignore[arg-type]
    for more in ({"flash": False}, {"fused_norms": False}, {"micro_batch": 3}):
        assert compute_peak_memory(size, replace(base, **more)).held > need  # type: ignore[arg-type]


def test_context_parallelism_splits_a_sequence() -> None:
    long = compute_peak_memory(LLAMA_7B, Layout(shards=8, seq=8192, context=2))
    short = compute_peak_memory(LLAMA_7B, Layout(shards=8, seq=4096))
    assert (long.activations, long.logits) == (short.activations, short.logits)
    assert long.reserved > short.reserved  # one more kind of group


def test_experts_spread_over_ranks() -> None:
    """Four layers of eight experts of 3 · 64 · 128 parameters each, two of which a token takes."""
    mixture = Decoder("mixture", 4, 64, 4, 4, 128, 1000, experts=8, active_experts=2)
    size, experts = model_size(mixture), 4 * 8 * 3 * 64 * 128
    dense = mixture.parameters - experts
    copies = compute_peak_memory(size, Layout("ddp", 1, 8, expert=4))
    assert copies.state == 16 * (dense + experts / 4)
    sharded = compute_peak_memory(size, Layout("full_shard", 8, expert=4))
    assert sharded.state - sharded.gathered - sharded.buffers == 16 * mixture.parameters / 8
    layer = mixture.layer_parameters - 6 * 3 * 64 * 128  # two experts of eight are whole on a rank
    assert sharded.buffers == 2 * 2 * layer
    # queries, keys, values, attention's result; four inner tensors and two copies for each expert
    inner = 4 * 64 + 2 * (4 * 128 + 2 * 64)
    assert whole_layer(size, Layout(seq=512)) == 512 * 2 * (4 * 64 + inner)


def test_gathered_logits_take_more_than_split_ones() -> None:
    split = compute_peak_memory(LLAMA_7B, Layout(tensor=4)).logits
    assert split == 14 * 2048 * 32000 / 4
    assert (
        compute_peak_memory(LLAMA_7B, Layout(tensor=4, split_logits=False)).logits
        == 18 * 2048 * 32000
    )


def test_a_fused_loss_keeps_logits_in_half_precision_alone() -> None:
    """Two bytes and a copy of two, of what else are also single precision, softmax, gradients."""
    assert compute_peak_memory(LLAMA_7B, Layout(fused_loss=True)).logits == 4 * 2048 * 32000
    assert compute_peak_memory(LLAMA_7B, Layout(tensor=4, fused_loss=True)).logits == 2048 * 32000
    gathered = Layout(tensor=4, fused_loss=True, split_logits=False)
    assert compute_peak_memory(LLAMA_7B, gathered).logits == 8 * 2048 * 32000


def test_the_probability_not_to_fit() -> None:
    assert p_oom(80e9, 80e9) == pytest.approx(0.5)
    # A logistic distribution of scale 0.1 · √3 / π = 0.05513 has a tenth below -0.05513 · ln 9.
    assert p_oom(80e9, 80e9 * 1.128778, 0.1) == pytest.approx(0.1, abs=1e-3)
    assert p_oom(40e9, 80e9) < 1e-5 and p_oom(160e9, 80e9) > 1 - 1e-5
    assert p_oom(1.0, 80e9) == 0 and p_oom(1e30, 1.0) == 1
    assert p_oom(90e9, 80e9, 0.3) < p_oom(90e9, 80e9, 0.1)


@pytest.mark.parametrize("virtual", [1, 2, 3])
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_micro_batches_in_flight_are_those_of_the_schedule(virtual: int, stage: int) -> None:
    """Four stages. Megatron's order: as many chunks forward as warm up, then one forward and one
    backward in turn; a chunk is held from its forward to its backward pass."""
    stages, many = 4, 24
    if virtual == 1:
        warm_up = stages - stage - 1
    else:
        warm_up = 2 * (stages - stage - 1) + (virtual - 1) * stages
    held = most = forward = 0
    while forward < many * virtual:
        forward, held = forward + 1, held + 1
        most = max(most, held)
        if forward > warm_up:
            held -= 1
    layout = Layout("ddp", pipeline=stages, virtual=virtual, micro_batches=many)
    assert in_flight(layout, stage) == most / virtual
    assert in_flight(replace(layout, micro_batches=1), stage) == 1


def test_only_the_outer_stages_hold_an_embedding() -> None:
    plain = model_size(Decoder("plain", 8, 64, 8, 8, 128, 5000))
    layout = Layout("ddp", pipeline=4, seq=64, micro_batches=16)
    first, second, third, last = (stage_memory(plain, layout, k).state for k in range(4))
    assert second == third and first == last
    assert first - second == 16 * 5000 * 64


def test_logits_of_two_ranks() -> None:
    whole = compute_peak_memory(LLAMA_7B, Layout()).logits
    assert compute_peak_memory(LLAMA_7B, Layout(tensor=2)).logits == whole / 2
    assert compute_peak_memory(LLAMA_7B, Layout(split_logits=False)).logits == whole


@pytest.mark.parametrize(("shards", "layers"), [(1, 0), (2, 2), (3, 2)])
def test_gradients_that_are_whole_until_they_are_scattered(shards: int, layers: int) -> None:
    need = compute_peak_memory(LLAMA_7B, Layout("zero2", shards, seq=128))
    assert need.buffers == layers * 2 * 202_383_360
