"""Iterations as names of ranges tell them, and what bounds their kernels."""

import json
from typing import Any

import pyarrow as pa
import pytest

from htk.base.errors import UsageError
from htk.base.schema import DERIVED, TABLES
from htk.physics.hardware import gpu
from htk.planning.serving.formats import WEIGHTS
from htk.whatif.served_iteration import (
    Bounds,
    ServedIteration,
    of_server,
    read_served_iteration,
    recorded_formats,
    served_format,
)
from tests.tables import make

MIXED = "execute_{}_context_2(sq{}sk40sqsq500sqsk700)_generation_{}(sq{}sk{}sqsq{}sqsk{})"


def tables(*names: str, ranks: int = 1) -> dict[str, pa.Table]:
    rows: list[dict[str, Any]] = [
        {"name": name, "on_gpu": False, "start_ns": 10 * i, "end_ns": 10 * i + 9, "rank": rank,
         "thread": "1"}
        for rank in range(ranks) for i, name in enumerate(names)
    ]  # fmt: skip
    empty = {n: schema.empty_table() for n, schema in {**TABLES, **DERIVED}.items()}
    return empty | {"annotations": make("annotations", rows)}


def mixed(requests: int, keys: int, padded: int, prompts: int) -> str:
    return MIXED.format(padded, prompts, requests, requests, keys, requests, keys)


def test_prompts_and_answers_are_told_apart() -> None:
    iteration = read_served_iteration(tables(mixed(8, 8000, 40, 30)))
    assert (iteration.requests, iteration.context, iteration.prompt_tokens) == (8, 1000, 30)
    assert iteration.prompt_pairs == 700 - (500 - 30) // 2
    assert (iteration.captured, iteration.tokens) == (10, 40)  # padded to 40, of which 30 prompts


def test_tokens_of_several_iterations_add_up() -> None:
    names = [mixed(8, 8000, 40, 30), mixed(10, 9000, 40, 30), mixed(12, 24000, 42, 30)]
    iteration = read_served_iteration(
        tables(*names, ranks=2)
    )  # ranks of one replica repeat each other
    assert (iteration.count, iteration.answering, iteration.generated) == (3, 3, 30)
    assert (iteration.requests, iteration.context) == (10, 1000), "of 1000, 900, 2000"
    assert iteration.tpot_ns(3e6) == 1e6
    assert iteration.generated_per_s(3e6) == pytest.approx(10_000)
    assert iteration.tokens_per_s(3e6) == pytest.approx((30 + 3 * 30) / 3e-3), "read and given"


def test_ranks_that_exchange_tokens_have_requests_of_their_own() -> None:
    """Four ranks, of which 0 and 1, 2 and 3 share a layer; (0, 2) and (1, 3) exchange tokens: two
    replicas of equal ranges. Without a group that is known each rank counts."""
    name = mixed(8, 8000, 40, 30)
    exchanges = [
        {"rank": rank, "type": "all_to_all", "group_ranks": json.dumps([rank % 2, rank % 2 + 2])}
        for rank in range(4)
    ]
    recorded_tables = tables(name, ranks=4)
    assert read_served_iteration(recorded_tables).generated == 8
    shared = recorded_tables | {"collectives": make("collectives", exchanges)}
    assert read_served_iteration(shared).generated == 2 * 8
    unknown = [{**row, "group_ranks": None} for row in exchanges]
    assert (
        read_served_iteration(shared | {"collectives": make("collectives", unknown)}).generated
        == 4 * 8
    )


def test_an_iteration_that_answers_nobody_has_no_time_for_a_token() -> None:
    iteration = read_served_iteration(tables("execute_context_1(9_81)_generation_0(0)"))
    assert iteration.prompt_tokens == 9 and iteration.prompt_pairs == 45
    assert iteration.tpot_ns(1e6) is None and iteration.generated_per_s(1e6) is None
    assert iteration.tokens_per_s(1e6) == pytest.approx(9000), "tokens of prompts"


def test_other_recordings_are_of_no_server() -> None:
    assert of_server(tables("ProfilerStep#3", "decode image")) is None
    assert of_server({}) is None
    with pytest.raises(UsageError, match="no iterations of a server"):
        read_served_iteration(tables("a range"))
    with pytest.raises(UsageError, match=r"captures its graphs \(capture_32_DECODE\)"):
        read_served_iteration(tables("capture_32_DECODE"))


def test_products_wait_for_weights_or_for_matrix_units() -> None:
    h100 = Bounds(gpu("h100"))
    rate, gbps = 0.92 * 794.5e3, 0.8 * 3350
    assert h100.balance == pytest.approx(rate / gbps)
    assert h100.products(8, WEIGHTS["bf16"]) == pytest.approx(2 / gbps, rel=1e-3)
    assert h100.products(8, WEIGHTS["fp8"]) == pytest.approx(1 / gbps, rel=1e-3)
    assert h100.products(5000, WEIGHTS["bf16"]) == pytest.approx(2 * 5000 / rate, rel=2e-3)
    assert h100.products(5000, WEIGHTS["fp8"]) == pytest.approx(1e4 / (0.92 * 1402.6e3), rel=2e-3)
    # Where both cost as much, neither hides the other.
    assert h100.products(h100.balance, WEIGHTS["bf16"]) == pytest.approx(2 / gbps * 2**0.5)
    unknown = Bounds(None)
    assert unknown.products(200, WEIGHTS["bf16"]) == pytest.approx(2**0.5)
    assert unknown.products(3, WEIGHTS["bf16"]) == pytest.approx(1, abs=2e-4)


def test_attention_of_answers_reads() -> None:
    some = ServedIteration(requests=4, context=100)
    more = some.asked(2, 3, 1)
    bounds = Bounds(gpu("h100"))
    assert bounds.attention(more) == pytest.approx(6 * bounds.attention(some))
    assert (more.requests, more.context) == (8, 300)


def test_names_of_kernels_tell_formats() -> None:
    names = ["_matmul_ogs_NNT_bf16xbf16xmxfp4_128", "cutlass_fp8_gemm", "ampere_bf16_gemm", None]
    formats = recorded_formats(names)
    assert formats == [WEIGHTS[n] for n in ("mxfp4", "fp8", "bf16", "bf16")]


@pytest.mark.parametrize(
    ("asked", "recorded", "then"),
    [
        ("fp8", "bf16", "fp8"),
        ("fp8", "mxfp4", "mxfp4"),  # experts of 4 bits stay
        ("int4", "fp8", "int4"),
        ("bf16", "fp8", "fp8"),
    ],
)
def test_narrower_weights_than_asked_for_stay(asked: str, recorded: str, then: str) -> None:
    served = ServedIteration(weights=WEIGHTS[asked])
    assert served_format(served, WEIGHTS[recorded]) == WEIGHTS[then]


def test_what_is_asked_grows_by_its_own_factor() -> None:
    """Twice the requests, three times their context, five times the prompts' tokens, whose pairs
    grow as the square; iterations and the graph's size stay."""
    some = ServedIteration(
        requests=4, context=100, prompt_tokens=30, prompt_pairs=450, captured=16, count=7,
        answering=6, generated=28,
    )  # fmt: skip
    expected = ServedIteration(
        requests=8, context=300, prompt_tokens=150, prompt_pairs=11_250, captured=16, count=7,
        answering=6, generated=56,
    )  # fmt: skip
    assert some.asked(2, 3, 5) == expected
    assert expected.tokens == 16 + 150
    assert expected.asked(4, 1, 1).tokens == 32 + 150


def test_attention_takes_longer_on_slower_memory() -> None:
    """Answers read 400 tokens' keys; a pair of a prompt counts for eight heads of products."""
    h100 = Bounds(gpu("h100"))
    gbps = 0.8 * 3350
    some = ServedIteration(requests=4, context=100, prompt_pairs=1000)
    assert h100.attention(some) == pytest.approx((400 + 1000 * 8 / h100.balance) / gbps)
    unknown = Bounds(None)
    assert unknown.attention(ServedIteration(requests=4, context=100)) == 400
