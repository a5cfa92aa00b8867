"""Waits for unrecorded ranks: told from transfers, and as long as what ranks compute."""

from dataclasses import replace

import numpy as np
import pytest

from htk.whatif.edits import world
from htk.whatif.missing_ranks import (
    add_unrecorded_waits,
    drop_unrecorded_waits,
    mark_partial,
    measure_unrecorded_waits,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

K = 1000
MB = 1 << 20


def gathers(lengths: list[int], size: int = 4 * MB, **given: object) -> list[Act]:
    common = {"group": 4, "per_node": 4, "in_bytes": size // 4, "out_bytes": size} | given
    return [
        comm(f"g{size // MB}.{k}", n * K, "all_gather", **common) for k, n in enumerate(lengths)
    ]


def one_of_four() -> StepModel:
    """Twelve gathers of 120 µs, two of which waited; a larger one that always waits."""
    lengths = [120] * 10 + [320, 420]
    large = gathers([620], 8 * MB, waits=("a",))
    return small_model([Act("a", 1000 * K), *gathers(lengths), *large, Act("b", 500 * K)])


def test_what_the_fastest_do_not_take_is_a_wait() -> None:
    model = one_of_four()
    found = dict(
        zip(
            model.graph.activities.name.tolist(),
            measure_unrecorded_waits(model).tolist(),
            strict=True,
        )
    )
    by_name = {model.graph.activities.names[code]: ns for code, ns in found.items()}
    assert by_name["g4.0"] == by_name["a"] == 0
    assert by_name["g4.10"] == pytest.approx(200 * K)
    assert by_name["g4.11"] == pytest.approx(300 * K)
    # 20 of latency, 100 for 4 MB: 8 MB take 220 at most, however long all of them take
    assert by_name["g8.0"] == pytest.approx(400 * K)


def test_nothing_is_a_wait_where_all_ranks_are_at_hand() -> None:
    acts = [
        comm(f"g{k}", ns * K, "all_gather", rank=rank, joined=f"g{k}", group=2, per_node=2,
             in_bytes=2 * MB, out_bytes=4 * MB)
        for rank in (0, 1)
        for k, ns in enumerate((100, 100, 300))
    ]  # fmt: skip
    model = small_model(acts)
    assert not mark_partial(model).any()
    assert not measure_unrecorded_waits(model).any()
    more = model.with_groups(model.is_comm, 4, 4)  # of groups of four, two are recorded
    assert mark_partial(more).all()
    assert measure_unrecorded_waits(more).max() == pytest.approx(200 * K)


def test_waits_grow_with_what_is_computed() -> None:
    model = one_of_four()
    waited = measure_unrecorded_waits(model)
    without = drop_unrecorded_waits(model, waited)
    assert length(without, "g8.0") == 220 * K
    assert (add_unrecorded_waits(without, model, waited).weight == model.weight).all()
    twice = without.with_lengths(without.is_compute, 2 * without.lengths())
    found = add_unrecorded_waits(twice, model, waited)
    assert length(found, "g8.0") == 220 * K + 2 * 400 * K
    assert length(found, "g4.0") == 120 * K


def test_a_collective_that_is_gone_is_not_waited_for() -> None:
    model = one_of_four()
    waited = measure_unrecorded_waits(model)
    gone = drop_unrecorded_waits(model, waited).with_lengths(model.is_comm, 0)
    assert add_unrecorded_waits(gone, model, waited).lengths()[model.is_comm].sum() == 0


def test_the_last_of_fewer_ranks_is_less_late() -> None:
    """What the step loses to unrecorded ranks is lost in the measure of the law."""
    model = one_of_four()
    waited = measure_unrecorded_waits(model)
    without = drop_unrecorded_waits(model, waited)
    lost = period(model) - period(without)
    assert lost > 0
    half = add_unrecorded_waits(replace(without, arrival_scale=0.5), model, waited)
    assert period(half) == period(without) + lost // 2
    assert half.added == {"skew": -lost // 2}
    assert period(
        add_unrecorded_waits(replace(without, arrival_scale=0.0), model, waited)
    ) == period(without)
    assert (
        period(add_unrecorded_waits(replace(without, arrival_scale=1.5), model, waited))
        == period(model) + lost // 2
    )


def test_world_says_how_late_the_last_comes() -> None:
    model = one_of_four()
    assert world.apply(model, "4").arrival_scale == 1
    # Φ⁻¹(7.625 / 8.25) over Φ⁻¹(3.625 / 4.25)
    assert world.apply(model, "8").arrival_scale == pytest.approx(1.434 / 1.049, rel=0.01)
    assert world.apply(model, "2").arrival_scale == pytest.approx(0.589 / 1.049, rel=0.01)
    assert np.array_equal(world.apply(model, "4").weight, model.weight)


def test_of_more_ranks_the_last_is_as_much_later_as_the_slowest_computes_longer_than_the_mean() -> (
    None
):
    model = small_model(
        [
            act
            for rank, ns in enumerate((100, 200, 600))
            for act in (
                Act(f"a{rank}", ns * K, rank=rank),
                *gathers([120], rank=rank, waits=(f"a{rank}",)),
            )
        ]
    )
    waited = np.where(model.is_comm, 50.0 * K, 0.0)
    lost = period(add_unrecorded_waits(model, model, waited)) - period(model)
    assert lost > 0
    more = add_unrecorded_waits(replace(model, arrival_scale=1.5), model, waited)
    assert more.added == {"skew": (lost + (600 - 300) * K) / 2}
