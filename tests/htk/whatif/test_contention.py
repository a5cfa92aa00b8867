"""Compute beside communication: shares and slowdowns of steps worked out by hand."""

import numpy as np
import pytest

from htk.whatif.contention import (
    _name_surroundings,
    compute_contention,
    of_transfers,
    settle_contention,
    share_beside_transfers,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.beside import every_other_beside
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model


def test_the_share_of_time_beside_is_of_ones_own_gpu() -> None:
    """a 100 and b 100 in turn; g from 0 to 60, h from 150 on beyond the end of b. Rank 1 runs
    compute alone."""
    model = small_model([
        Act("a", 100),
        Act("b", 100),
        comm("g", 60, "all_gather"),
        Act("i", 150, lane="other", kind="memory"),
        comm("h", 200, "all_gather", waits=("i",)),
        Act("c", 80, rank=1),
    ])  # fmt: skip
    names = model.graph.activities.names
    phi = share_beside_transfers(model, model.graph.time)
    by_name = {names[n]: phi[k] for k, n in enumerate(model.graph.activities.name.tolist())}
    assert (by_name["a"], by_name["b"], by_name["c"]) == (0.6, 0.5, 0.0)


def alternating(slower: float, rounds: int = 10) -> StepModel:
    """Kernels of one name, every other one beside a gather that is as long, and slower."""
    step = []
    for k in range(rounds):
        before = (f"alone{k - 1}",) if k else ()
        beside = round(1000 * slower)
        step.append(comm(f"g{k}", beside, "all_gather", waits=before))
        step.append(Act(f"mm{k}", beside))
        step.append(Act(f"alone{k}", 1000, waits=(f"g{k}",)))
    return small_model(step)


def renamed(model: StepModel) -> StepModel:
    """All its compute under one name: shapes and neighbours are equal too."""
    model.graph.activities.name[model.is_compute] = 0
    return model


@pytest.mark.parametrize("slower", [1.0, 1.1, 1.3])
def test_compute_seen_both_ways_tells_by_how_much_it_slows(slower: float) -> None:
    assert compute_contention(renamed(alternating(slower))) == pytest.approx(slower - 1, abs=1e-6)


def test_what_is_seen_one_way_or_seldom_tells_nothing() -> None:
    assert compute_contention(alternating(1.3)) == 0, "each name is seen once"
    assert compute_contention(renamed(alternating(1.3, rounds=3))) == 0
    assert compute_contention(small_model([comm("g", 10, "all_gather")])) == 0
    assert compute_contention(renamed(alternating(1.9))) == 0.4, "published: at most"


def test_a_replay_settles_where_what_overlaps_slows_what_it_overlaps() -> None:
    """a is 150 us long, recorded alone; once g of 100 us runs beside it, with kappa 0.5:
    L = 150 (1 + 0.5 * 100 / L), so L = 75 + sqrt(75^2 + 7500) = 189.56 us."""
    model = small_model([Act("a", 150_000), comm("g", 100_000, "all_gather")])
    alone = share_beside_transfers(model, model.graph.time) * 0
    after, replayed = settle_contention(model, 0.5, alone)
    expected = 1000 * (75 + (75**2 + 7500) ** 0.5)
    assert replayed.period_ns == pytest.approx(expected, rel=2e-3)
    assert length(after, "a") == pytest.approx(expected, rel=2e-3)
    assert length(after, "g") == 100_000
    same, untouched = settle_contention(model, 0.0, alone)
    assert same is model and untouched.period_ns == period(model) == 150_000


def test_transfers_are_slower_with_compute_beside_them() -> None:
    model = every_other_beside()
    slower, beside = of_transfers(model)
    assert slower == pytest.approx(0.0953, abs=0.001)  # ln 1.1
    assert beside[model.is_comm].tolist() == [1.0, 0.0] * 8
    few = small_model([Act("a", 10), comm("g", 10, "all_gather")])
    assert of_transfers(few)[0] == 0


def test_what_ran_beside_communication_is_quicker_without_it() -> None:
    """a took 150 us with communication beside it all the time, which now comes behind it."""
    model = small_model([Act("a", 150_000), comm("g", 100_000, "all_gather", waits=("a",))])
    before = model.is_compute.astype(float)
    after, replayed = settle_contention(model, 0.5, before)
    assert length(after, "a") == pytest.approx(100_000, rel=1e-3)
    assert replayed.period_ns == pytest.approx(200_000, rel=1e-3)


def test_neighbours_are_those_of_the_same_stream() -> None:
    model = small_model([
        *(Act("a", 10), Act("b", 10), Act("c", 10)),
        *(Act("d", 10, lane="other"), Act("e", 10, lane="other")),
        Act("f", 10, rank=1),
    ])  # fmt: skip
    names = [*model.graph.activities.names, None]  # -1: none
    rows = np.arange(6)
    own, following, preceding = (
        [names[n] for n in column.tolist()] for column in _name_surroundings(model, rows)
    )
    assert own == ["a", "b", "c", "d", "e", "f"]
    assert following == ["b", "c", None, "e", None, None]
    assert preceding == [None, "a", "b", None, "d", None]
