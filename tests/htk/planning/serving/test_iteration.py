"""Iterations by hand, and what must grow or fall."""

from dataclasses import replace
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


def compute(model: Decoder = SMALL, **options: object) -> ServerCompute:
    return ServerCompute(Server(model, H100, **options))  # type: ignore[arg-type]


def test_a_single_token_waits_for_weights() -> None:
    """Q, K and V in one product, output, up, down, logits: bytes in and out, and of weights."""
    shapes = [(1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024), (1024, 2048)]
    moved = sum(2 * (k + k * n + n) for k, n in shapes)
    time = compute().iteration(IterationWork(requests=1, context=100))
    assert time.products == pytest.approx(moved / GBPS, rel=1e-3)  # computing: little
    keys_and_values = 100 * 2 * 2 * 1024
    assert time.attention == pytest.approx(keys_and_values / GBPS, rel=1e-3)
    assert time.communication == time.draft == 0
    assert time.gaps == (5 + 4 + 20) * 2_000
    assert time.total == pytest.approx(
        time.products + time.attention + time.memory + time.gaps + 500_000
    )


def test_many_tokens_wait_for_matrix_units() -> None:
    rate = 0.92 * 794.5e3
    depth = 2_000 * 794.5e3 / 132 / (2 * 128 * 256)
    shapes = [(1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)]
    expected = 0.0
    for k, n in shapes:
        computing = 2 * 8192 * k * n / rate * (1 + depth / k)
        reading = 2 * (8192 * k + k * n + 8192 * n) / GBPS
        assert computing > 1.5 * reading
        expected += (computing**2 + reading**2) ** 0.5
    logits = 2 * (1024 + 1024 * 2048 + 2048) / GBPS
    time = compute().iteration(IterationWork(prompt_tokens=8192, prompts=1))
    assert time.products == pytest.approx(expected + logits, rel=1e-4)


def test_narrow_weights_are_read_sooner() -> None:
    work = IterationWork(requests=1, context=100)
    wide = compute(weights="bf16").iteration(work).products
    ends = 2 * (1024 + 1024 * 2048 + 2048) / GBPS  # the output stays in 16 bits
    shapes = [(1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024)]
    for name, weight, operand in (("fp8", 1, 1), ("int8", 1, 2), ("int4", 0.5 + 2.5 / 128, 2)):
        moved = sum(operand * k + weight * k * n + 2 * n for k, n in shapes)
        narrow = compute(weights=name).iteration(work).products
        assert narrow == pytest.approx(ends + moved / GBPS, rel=1e-3)
        assert narrow < wide


def test_experts_that_no_token_takes_are_not_read() -> None:
    """Of 4 experts each token takes 2: one is left out by 2 tokens with probability 1 / 4."""
    mixed = replace(SMALL, experts=4, active_experts=2)
    server = compute(mixed)

    def read(tokens: int) -> float:
        return sum(p.count for p in server._products(tokens) if p.grouped) / 2

    assert [read(n) for n in (1, 2, 3)] == [2.0, 3.0, 3.5]
    rows = [p for p in server._products(3) if p.grouped]
    assert sum(p.count * p.rows for p in rows) / 2 == 6.0  # tokens times experts of each


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
    assert fused.gaps == 29 * 2_000
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
