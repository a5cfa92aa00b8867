"""Tokens and utilisation of a step, of figures that are given."""

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from htk.answers.question import own_question
from htk.base.errors import AnalysisError
from htk.base.schema import DERIVED, TABLES
from htk.whatif import rates as module
from htk.whatif.rates import Rates, compute_rates
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model
from tests.tables import make

TABLES_OF_NOTHING = {n: schema.empty_table() for n, schema in {**TABLES, **DERIVED}.items()}


def test_rates_of_all_gpus() -> None:
    told = Rates(4, 1000, 6e12, 30e12)
    assert told.tokens_per_s(2.0, 500_000_000) == 1000 * 2 / 0.5
    assert told.mfu_pct(2.0, 500_000_000) == pytest.approx(100 * 6 * 2 / (30 * 0.5))
    assert Rates(4, None, 6e12, None).tokens_per_s(1, 1) is None
    assert Rates(4, None, 6e12, None).mfu_pct(1, 1) is None
    assert Rates(4, None, None, 3e12).mfu_pct(1, 1) is None


def step(**facts: Any) -> StepModel:
    acts = [
        Act("e", 10, op="aten::embedding", dims="[[100, 8], [4, 16]]"),
        comm("r", 10, "all_reduce", in_bytes=8, group=6, per_node=6),
    ]
    return small_model(acts, **facts)


def asked(monkeypatch: pytest.MonkeyPatch, rows: list[tuple[int, int, float, float]]) -> list[str]:
    """Answer the question of FLOPs with these; returns what was asked for."""
    per: list[str] = []
    columns = [list(c) for c in zip(*rows, strict=True)]

    def function(kernels: pa.Table, *, per: str, asked_for: list[str] = per) -> pa.Table:
        asked_for.append(per)
        names = ("step", "cycle", "model_flops", "peak_tflops")
        return pa.table(dict(zip(names, columns, strict=True)))

    monkeypatch.setattr(module, "flops", own_question(function))
    return per


def test_work_is_the_mean_of_the_ranks_of_that_step_and_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = step()
    number, cycle = model.graph.step, 3
    assert number is not None
    rows = [
        (number, cycle, 6e12, 300.0),
        (number, cycle, 8e12, math.nan),
        (number, cycle, math.nan, 500.0),
        (number, cycle + 1, 90e12, 9.0),
        (number + 1, cycle, 90e12, 9.0),
    ]
    per = asked(monkeypatch, rows)
    model = replace(model, graph=replace(model.graph, cycle=cycle))
    found = compute_rates(TABLES_OF_NOTHING, model)
    assert per == ["step"]
    assert (found.flops, found.peak_flops) == (7e12, 400e12)
    whole = replace(model, graph=replace(model.graph, step=None, cycle=None))
    found = compute_rates(TABLES_OF_NOTHING, whole)
    assert per[1:] == ["rank"]
    assert found.flops == pytest.approx((6 + 8 + 90 + 90) / 4 * 1e12)


def test_no_work_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    model = step()
    asked(monkeypatch, [(model.graph.step or 0, 0, 0.0, 300.0)])
    found = compute_rates(TABLES_OF_NOTHING, model)
    assert (found.flops, found.peak_flops) == (None, None)

    def no_shapes(*, per: str) -> pa.Table:
        raise AnalysisError("no shapes")

    monkeypatch.setattr(module, "flops", own_question(no_shapes))
    assert compute_rates(TABLES_OF_NOTHING, model).flops is None


@pytest.mark.parametrize(("world", "gpus"), [(None, 6), (4, 6), (16, 16)])
def test_gpus_are_the_most_that_anything_tells(world: int | None, gpus: int) -> None:
    tables = TABLES_OF_NOTHING | {"ranks": make("ranks", [{"rank": 0, "world_size": world}])}
    assert compute_rates(tables, step(tables=tables)).gpus == gpus


def test_tokens_of_a_step_are_those_of_its_micro_batches_and_of_groups_that_share_none() -> None:
    """64 tokens of a rank, twice a step; 6 ranks, of which 2 share each layer."""
    acts = [
        Act("e", 10, op="aten::embedding", dims="[[100, 8], [4, 16]]"),
        comm("t", 10, "all_reduce", waits=("e",), in_bytes=1 << 21, group=2, per_node=2),
        Act("b0", 200, waits=("t",), backward=True),
        Act("f1", 100),
        Act("b1", 200, backward=True),
        comm("r", 10, "all_reduce", waits=("b1",), in_bytes=8 << 20, group=3, per_node=3,
             backward=True),
    ]  # fmt: skip
    told = make("ranks", [{"rank": 0, "world_size": 6}])
    model = small_model(acts, tables=TABLES_OF_NOTHING | {"ranks": told})
    assert compute_rates(TABLES_OF_NOTHING, model).tokens == 64 * 2 * 3
