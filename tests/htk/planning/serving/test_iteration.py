"""Iterations by hand, and what must grow or fall."""

from itertools import pairwise

import pytest

from htk.physics.decoder import Decoder
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.iteration import IterationWork, ServerCompute
from htk.planning.serving.server import Server

H100 = gpu("h100")
SMALL = Decoder("small", 1, 1024, 8, 8, 4096, 2048, False, biases=False)
GBPS = 0.8 * 3350  # a large copy, in bytes a ns
SHAPES = [(1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024), (1024, 2048)]


def compute(model: Decoder = SMALL, **options: object) -> ServerCompute:
    return ServerCompute(Server(model, H100, **options))  # type: ignore[arg-type]


def test_a_single_token_waits_for_weights() -> None:
    """Q, K and V in one product, output, up, down, logits: bytes of weights, and five starts."""
    moved = sum(2 * k * n for k, n in SHAPES)
    time = compute().iteration(IterationWork(requests=1, context=100))
    assert moved / 3350 < time.products < moved / GBPS + 5 * 4_000
    keys_and_values = 100 * 2 * 2 * 1024
    assert time.attention == pytest.approx(keys_and_values / GBPS, rel=1e-3)
    assert time.communication == time.draft == 0
    assert time.gaps == (3 + 2 + 20) * 2_000  # beside products
    assert time.total == pytest.approx(
        time.products + time.attention + time.memory + time.gaps + 500_000
    )


def test_many_tokens_wait_for_matrix_units() -> None:
    computing = sum(2 * 8192 * k * n for k, n in SHAPES[:-1])
    time = compute().iteration(IterationWork(prompt_tokens=8192, prompts=1))
    assert computing / 989e3 < time.products < computing / 500e3


def test_narrow_weights_are_read_sooner() -> None:
    work = IterationWork(requests=1, context=100)
    model = decoder("llama3-8b")
    wide = compute(model).iteration(work).products
    for name, element in (("fp8", 1), ("int8", 1), ("int4", 0.5)):
        narrow = compute(model, weights=name).iteration(work).products
        assert element / 2 * 0.9 * wide < narrow < (element / 2 + 0.35) * wide


def test_experts_that_no_token_takes_are_not_read() -> None:
    """Of 128 experts a token takes 8; 64 tokens take nearly all, and read them."""
    model = decoder("qwen3-30b-a3b")
    one, many = (
        compute(model).iteration(IterationWork(requests=n, context=9)).products for n in (1, 64)
    )
    experts = 2 * 48 * 128 * 3 * 2048 * 768
    assert one < 0.25 * experts / GBPS
    assert 0.9 * experts / 3350 < many < 1.5 * experts / GBPS


def test_experts_take_the_fastest_library() -> None:
    """By blocks or not: weights in eight bits are multiplied sooner than those in sixteen."""
    model = decoder("qwen3-235b-a22b")
    work = IterationWork(requests=64, context=9)
    wide, narrow = (
        compute(model, tensor_parallel=4, weights=w).iteration(work).products
        for w in ("bf16", "fp8")
    )
    assert narrow < 0.75 * wide


def test_latent_attention_reads_one_vector_for_all_heads() -> None:
    server = ServerCompute(Server(decoder("deepseek-v3"), gpu("h200"), 8, weights="fp8"))
    one = server.iteration(IterationWork(requests=1, context=4096)).attention
    flops = 2 * 128 * (2 * 512 + 64) * 61 * 4096 / 8
    read = 61 * 4096 * 576 * 2
    rate, gbps = 0.92 * 794.5e3, 0.8 * 4800
    assert one == pytest.approx(((flops / rate) ** 2 + (read / gbps) ** 2) ** 0.5)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b",
                                  "nemotron-3-nano"])  # fmt: skip
def test_more_work_is_never_faster(name: str) -> None:
    server = compute(decoder(name))
    for works in (
        [IterationWork(requests=n, context=500) for n in (1, 2, 3, 8, 64, 65, 500, 4000)],
        [IterationWork(requests=7, context=n) for n in (1, 2, 100, 127, 128, 129, 5_000)],
        [IterationWork(prompt_tokens=n, prompts=1) for n in (1, 2, 100, 2048, 9000)],
        [
            IterationWork(prompt_tokens=n, prompts=1, requests=3, context=9)
            for n in (0, 1, 64, 2048)
        ],
        [IterationWork(prompt_tokens=99, prompts=1, cached=n) for n in (0, 1, 64, 2048)],
        [IterationWork(requests=7, context=300, tokens_each=n) for n in (1, 2, 5)],
    ):
        times = [server.iteration(work).total for work in works]
        assert all(a <= b for a, b in pairwise(times)), (name, works[0])


def test_requests_together_take_less_than_apart() -> None:
    server = compute(decoder("llama3-8b"))
    apart = [
        server.iteration(IterationWork(requests=n, context=500)).total / n
        for n in (1, 2, 8, 64, 512)
    ]
    assert all(a > b for a, b in pairwise(apart))


def test_more_gpus_share_the_reading_and_wait_for_each_other() -> None:
    work = IterationWork(requests=4, context=2000)
    times = [
        compute(decoder("llama3-70b"), tensor_parallel=t).iteration(work) for t in (1, 2, 4, 8)
    ]
    assert all(a.products > b.products for a, b in pairwise(times))
    assert all(a.attention == pytest.approx(2 * b.attention) for a, b in pairwise(times))
    assert times[0].communication == 0
    # 160 sums of 4 rows of 8192 in one step: 10 µs, and what 7 others hand over at 0.75 · 450 GB/s
    size = 2 * 4 * 8192
    assert times[3].communication == pytest.approx(160 * (10_000 + 7 * size / 337.5))


def test_sums_over_slow_links_go_round_a_ring() -> None:
    slow = Server(decoder("llama3-70b"), gpu("l40s"), 4)
    sent = ServerCompute(slow).iteration(IterationWork(prompt_tokens=8192, prompts=1)).communication
    size = 2 * 8192 * 8192
    assert sent == pytest.approx(160 * (2 * 3 / 4 * size / (0.75 * 32) + 20_000))


def test_eager_kernels_wait_for_the_host() -> None:
    work = IterationWork(requests=1, context=100)
    fused, eager = (compute(kernels=k).iteration(work) for k in ("fused", "eager"))
    assert fused.gaps == 25 * 2_000
    assert eager.total == pytest.approx(2 * 29 * 6_000 + 500_000)  # nothing else takes as long


def test_a_draft_adds_its_own_passes() -> None:
    from htk.planning.serving.server import Speculation

    target = decoder("llama3-70b")
    own = Speculation(3, 0.7, decoder("llama3-8b"))
    server = Server(target, H100, 4, speculation=own)
    work = IterationWork(requests=2, context=800, tokens_each=4)
    draft = ServerCompute(Server(decoder("llama3-8b"), H100, 4, host_ns=0))
    each = draft.iteration(IterationWork(requests=2, context=800)).total
    assert ServerCompute(server).iteration(work).draft == pytest.approx(3 * each)
