"""Goodput against trying everything."""

import math

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.serving.objectives import (
    Objective,
    list_served_layouts,
    most_within,
    plan_colocated,
    plan_disaggregated,
)
from htk.planning.serving.server import Server
from htk.planning.serving.steady import Load, SteadyServer
from tests.thinned import thinned

EIGHT, H100 = decoder("llama3-8b"), gpu("h100")
MS = 1e6


@pytest.mark.parametrize("load", thinned([Load(1024, 256), Load(256, 32), Load(6000, 100)], 3))
@pytest.mark.parametrize(
    "objective",
    [Objective(300 * MS, 15 * MS), Objective(60 * MS), Objective(tpot_ns=8.5 * MS), Objective()],
)
def test_the_largest_batch_is_that_of_trying_each(load: Load, objective: Objective) -> None:
    steady = SteadyServer(Server(EIGHT, H100, chunk=2048), load)
    tried = [n for n in range(1, steady.most_requests + 1) if objective.holds(steady.answering(n))]
    best = most_within(steady, objective)
    if best is None:
        assert not tried
    else:
        assert best.requests == max(tried)
        assert len(tried) == max(tried)  # no number between them fails


def test_limits_that_nothing_holds() -> None:
    steady = SteadyServer(Server(EIGHT, H100), Load(1000, 100))
    assert most_within(steady, Objective(tpot_ns=1 * MS)) is None
    assert most_within(steady, Objective(ttft_ns=1 * MS)) is None
    with pytest.raises(UsageError):
        Objective(ttft_ns=0)


def test_tighter_limits_never_serve_more() -> None:
    steady = SteadyServer(Server(EIGHT, H100), Load(1000, 200))
    rates = []
    for limit in (7, 8, 10, 14, 20, 40, 100):
        best = most_within(steady, Objective(tpot_ns=limit * MS))
        rates.append(best.requests_per_s if best else 0.0)
    assert rates == sorted(rates) and rates[0] < rates[-1]


def test_apart_no_side_serves_more_than_it_can() -> None:
    """The ratio is that of trying all, and each side's rate that of its own times."""
    server, load, objective = Server(EIGHT, H100), Load(2048, 128), Objective(400 * MS, 12 * MS)
    pair = plan_disaggregated(server, server, load, objective)
    assert pair is not None
    p, d = (int(part.split(" × ")[0]) for part in pair.layout.split(" + "))
    assert p + d == pair.gpus
    steady = SteadyServer(server, load)
    reading = steady.prefill_ns()
    assert pair.requests_per_s / p * reading * 1e-9 <= 0.99
    decode = steady.decode(pair.requests)
    ability = d * pair.requests / (decode.total * 128) * 1e9
    assert pair.requests_per_s <= ability * (1 + 1e-9)
    moved = 2048 * 131_072 / (0.75 * 50)  # GB/s of one GPU's adapter
    assert pair.kv_transfer_ns == pytest.approx(40_000 + moved)
    assert pair.tpot_ns == pytest.approx(decode.total + pair.kv_transfer_ns / 128)
    assert pair.tpot_ns <= 12 * MS and pair.ttft_p90_ns <= 400 * MS * (1 + 1e-9)


def test_apart_pays_where_reading_disturbs_answers() -> None:
    """DistServe's case: long prompts and a tight limit on each token."""
    server = Server(EIGHT, H100)
    load, tight = Load(4096, 128), Objective(400 * MS, 8 * MS)
    together, pair = (
        plan_colocated(server, load, tight),
        plan_disaggregated(server, server, load, tight),
    )
    assert pair is not None
    assert together is None or pair.requests_per_s_per_gpu > together.requests_per_s_per_gpu
    loose = Objective()
    both, apart = (
        plan_colocated(server, load, loose),
        plan_disaggregated(server, server, load, loose),
    )
    assert both is not None and apart is not None
    assert both.requests_per_s_per_gpu > 0.8 * apart.requests_per_s_per_gpu


def test_layouts_hold_the_limits_and_name_their_gpus() -> None:
    load, objective = Load(1024, 128), Objective(300 * MS, 20 * MS)
    rows = list(
        list_served_layouts(Server(decoder("llama3-70b"), H100, weights="fp8"), load, objective)
    )
    assert [row.layout for row in rows[:-1]] == ["tp 2", "tp 4", "tp 8"]
    assert [row.gpus for row in rows[:-1]] == [2, 4, 8]
    assert "prefill" in rows[-1].layout and "decode" in rows[-1].layout
    for row in rows:
        assert row.tpot_ns <= objective.tpot_ns and row.ttft_p90_ns <= objective.ttft_ns
        assert math.isfinite(row.requests_per_s) and row.requests_per_s > 0
