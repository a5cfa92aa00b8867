"""A server's iteration: 8 requests of 1024 tokens each."""

import pytest

from htk.errors import UsageError
from htk.schema import DERIVED, TABLES
from htk.whatif.edits import serving
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, length, small_scene
from tests.tables import make

STEP = (
    Act("mm", 102_500),
    Act("attention", 52_500, family="attention"),
    Act("norm", 12_500, family="norm"),
)


def server(name: str = "execute_context_0(0)_generation_8(sq8sk8192)") -> StepModel:
    tables = {n: schema.empty_table() for n, schema in {**TABLES, **DERIVED}.items()}
    made = {"name": name, "on_gpu": False, "start_ns": 0, "end_ns": 10, "thread": "1"}
    tables["annotations"] = make("annotations", [made])
    return small_scene(STEP, tables=tables)


def lengths(value: str) -> list[int]:
    found = serving.apply(server(), value)
    return [length(found, name) for name in ("mm", "attention", "norm")]


def test_what_is_recorded() -> None:
    found = serving.recorded(server())
    assert (found.requests, found.context, found.prefill) == (8, 1024, 0)


def test_more_requests_share_the_weights() -> None:
    # 16 tokens, both below the balance of 200
    assert lengths("requests=2x") == [102_500, 102_500, 22_500]
    assert serving.apply(server(), "requests=16").samples == 2


def test_beyond_the_balance_products_grow() -> None:
    assert lengths("requests=400")[0] == 2500 + 100_000 * 2


def test_longer_contexts_cost_attention() -> None:
    assert lengths("context=2048") == [102_500, 102_500, 12_500]


def test_a_captured_batch_is_computed_whole() -> None:
    assert lengths("captured=32") == [102_500, 52_500, 42_500]
    with pytest.raises(UsageError, match="does not hold"):
        lengths("captured=4")


def test_no_server_no_requests() -> None:
    with pytest.raises(UsageError, match="no iterations"):
        serving.apply(server("a range"), "requests=2x")
