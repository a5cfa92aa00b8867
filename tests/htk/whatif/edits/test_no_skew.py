"""Nobody waits for a late rank: only the waits go, never the transfers."""

from pathlib import Path

import pytest

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import network, no_skew
from htk.whatif.predict import predict_answer
from tests.htk.whatif.small_step_model import Act, comm, period, small_model


def unequal(rank: int, first: int, second: int) -> list[Act]:
    """Two collectives of 20 ns, each after work of another length on each rank."""
    size = {"group": 2, "per_node": 2, "in_bytes": 1 << 20, "out_bytes": 1 << 20}
    return [
        Act("a", first, rank=rank),
        comm("c", 20, "all_reduce", rank=rank, waits=("a",), joined="c", **size),
        Act("b", second, rank=rank, waits=("c",)),
        comm("d", 20, "all_reduce", rank=rank, waits=("b",), joined="d", **size),
    ]


def test_waits_go_and_transfers_stay() -> None:
    # as recorded each collective waits for the 100 of one rank: 100 + 20 + 100 + 20
    model = small_model(unequal(0, 100, 50) + unequal(1, 50, 100))
    assert period(model) == 240
    assert period(no_skew.apply(model, "on")) == 100 + 20 + 50 + 20


def test_ranks_that_are_never_late_win_nothing() -> None:
    model = small_model(unequal(0, 100, 50) + unequal(1, 100, 50))
    assert period(no_skew.apply(model, "on")) == period(model) == 190


def test_a_rank_that_is_always_slower_is_evened_out() -> None:
    # computes 100 + 100 beside 50 + 50: all take 75 + 75, and both transfers
    model = small_model(unequal(0, 100, 100) + unequal(1, 50, 50))
    assert period(model) == 240
    assert period(no_skew.apply(model, "on")) == 75 + 20 + 75 + 20


def test_calls_that_not_every_rank_makes_stay() -> None:
    # e, on one rank alone, runs beside its second transfer, which is shorter
    model = small_model([*unequal(0, 100, 50), Act("e", 30), *unequal(1, 50, 100)])
    assert period(no_skew.apply(model, "on")) == 75 + 20 + 75 + 30


def test_what_the_network_then_takes_is_still_waited_for() -> None:
    model = small_model(unequal(0, 100, 50) + unequal(1, 50, 100))
    slower = network.apply(model, "latency=10x")  # all of a transfer of 20 ns is latency
    assert period(no_skew.apply(slower, "on")) == 100 + 200 + 50 + 200


@pytest.mark.parametrize("strategy", ["full_shard", "ddp"])
def test_a_job_without_jitter_has_no_skew_to_lose(tmp_path: Path, strategy: str) -> None:
    """Simulated without noise, exposed communication is transfer, and none of it goes."""
    job = Config(
        model="gpt3-126m",
        layers=2,
        nodes=2,
        gpus_per_node=2,
        noise=0.0,
        jitter_ns=0,
        strategy=strategy,
        steps=3,
        inter_gbps=5.0,
    )
    simulate_job(check_config(job), tmp_path)
    start = build_baseline(open_trace(str(tmp_path)).tables)
    found = predict_answer(start, [("no_skew", "on")])
    assert found.exposed_ns is not None and found.exposed_ns > 0.2 * found.measured_ns
    assert found.step_ns == pytest.approx(found.measured_ns, rel=0.01)


def test_copies_stay_as_long_as_they_were() -> None:
    """Compute is evened out; what a rank copies is its own: 60 + 40 + 20."""

    def step(rank: int, copied: int) -> list[Act]:
        size = {"group": 2, "per_node": 2, "in_bytes": 1 << 20, "out_bytes": 1 << 20}
        return [
            Act("a", 60, rank=rank),
            Act("m", copied, rank=rank, kind="memory"),
            comm("c", 20, "all_reduce", rank=rank, waits=("m",), joined="c", **size),
        ]

    model = small_model(step(0, 40) + step(1, 10))
    assert period(no_skew.apply(model, "on")) == period(model) == 120
