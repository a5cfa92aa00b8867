"""Memory of a server, and what it refuses."""

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.server import Server, Speculation

SEVENTY, H100 = decoder("llama3-70b"), gpu("h100")


def test_weights_of_each_gpu() -> None:
    root = 2 * 128_256 * 8192 + 8192
    layers = SEVENTY.parameters - root
    assert Server(SEVENTY, H100, 8).weight_bytes == pytest.approx(2 * SEVENTY.parameters / 8)
    assert Server(SEVENTY, H100, 2, weights="fp8").weight_bytes == (layers + 2 * root) / 2
    stage = Server(SEVENTY, H100, 2, 4, weights="int4").weight_bytes
    assert stage == pytest.approx(((0.5 + 2.5 / 128) * layers / 4 + root) / 2)


@pytest.mark.parametrize("tokens", [1, 700, 9_000])
def test_the_most_requests_fit_and_one_more_does_not(tokens: int) -> None:
    server = Server(SEVENTY, H100, 4)
    most = server.most_requests(tokens)
    logits = 6 * 128_256 / 4
    assert server.kv_bytes(most, tokens) + most * logits <= server.kv_room_bytes
    assert server.kv_bytes(most + 1, tokens) + (most + 1) * logits > server.kv_room_bytes


def test_a_further_token_takes_no_state() -> None:
    space = Server(decoder("nemotron-3-nano"), H100)
    assert space.kv_token_bytes == 6 * 2 * 2 * 2 * 128  # layers of attention, heads, K and V
    assert space.kv_bytes(1, 11) - space.kv_bytes(1, 10) == space.kv_token_bytes
    assert Server(SEVENTY, H100, 4, 2).kv_token_bytes == 327_680 / 8


def test_weights_that_do_not_fit_leave_no_room() -> None:
    assert Server(SEVENTY, H100, 1).kv_room_bytes < 0
    assert Server(SEVENTY, H100, 1).most_requests(10) == 0


@pytest.mark.parametrize(("drafted", "share"), [(1, 0.5), (3, 0.8), (5, 0.0), (4, 1.0)])
def test_tokens_of_an_iteration_that_verifies(drafted: int, share: float) -> None:
    """One, and each drafted token whose forerunners were all right."""
    expected = sum(share**n for n in range(drafted + 1))
    assert Speculation(drafted, share).tokens == pytest.approx(expected)


def test_a_draft_takes_memory() -> None:
    plain = Server(SEVENTY, H100, 4, weights="fp8")
    drafted = Server(SEVENTY, H100, 4, weights="fp8", speculation=Speculation(3, 0.7))
    layer = (SEVENTY.parameters - (2 * 128_256 * 8192 + 8192)) / 80
    assert drafted.weight_bytes - plain.weight_bytes == pytest.approx(layer / 4, rel=1e-6)
    own = Server(SEVENTY, H100, 4, speculation=Speculation(3, 0.7, decoder("llama3-8b")))
    more = own.weight_bytes - Server(SEVENTY, H100, 4).weight_bytes
    assert more == pytest.approx(2 * decoder("llama3-8b").parameters / 4)


def test_formats_that_a_gpu_has_no_products_in_are_brought_to_16_bits() -> None:
    assert Server(SEVENTY, H100, weights="fp8").format.rate == "fp8"
    ampere = Server(SEVENTY, gpu("a100-80gb"), weights="fp8").format
    assert (ampere.rate, ampere.weight_bytes, ampere.operand_bytes) == ("bf16", 1, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tensor_parallel": 3}, "does not divide 64 heads"),
        ({"tensor_parallel": 0}, "at least 1"), ({"pipeline_parallel": 81}, "81 stages"),
        ({"weights": "fp3"}, "one of bf16"), ({"kv_cache": "int2"}, "one of bf16"),
        ({"chunk": 0}, "chunk must be at least 1"), ({"price": -1.0}, "positive"),
        ({"host_ns": float("nan")}, "from 0"), ({"kernels": "quick"}, "one of fused"),
    ],
)  # fmt: skip
def test_what_is_no_server_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Server(SEVENTY, H100, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("drafted", "share"), [(0, 0.5), (2, 1.5), (2, float("nan"))])
def test_what_is_no_speculation_is_refused(drafted: int, share: float) -> None:
    with pytest.raises(UsageError):
        Speculation(drafted, share)
