"""Pieces that take turns, against schedules in which each piece is an activity of its own."""

import random

import numpy as np
import pytest

from htk.whatif.splits import Pieces, cut_into, hide_blocking, list_blocking
from tests.htk.whatif.small_step_model import Act, comm, period, small_model
from tests.thinned import thinned

LAYERS = 4


def _step(segments: list[list[list[int]]], transfers: list[int], *, own_lane: bool) -> list[Act]:
    """A transfer waits for the segment before it, the segment after it for the transfer."""
    acts = []
    for rank, of_rank in enumerate(segments):
        for k, kernels in enumerate(of_rank):
            waits = (f"t{k - 1}",) if k else ()
            for n, length in enumerate(kernels):
                acts.append(Act(f"k{k}.{n}", length, rank=rank, waits=waits if n == 0 else ()))
            if k < len(transfers):
                last = f"k{k}.{len(kernels) - 1}"
                lane = {"lane": "comm" if own_lane else "compute"}
                acts.append(
                    comm(f"t{k}", transfers[k], "all_reduce", rank=rank, waits=(last,),
                         joined=f"t{k}" if len(segments) > 1 else None, **lane)
                )  # fmt: skip
    return acts


def _taken_in_turn(segments: list[list[list[int]]], transfers: list[int], pieces: int) -> float:
    """The same with every piece run by itself, in the order in which they are launched."""
    ranks = range(len(segments))
    compute, link = [0.0 for _ in ranks], 0.0
    arrived = [0.0] * pieces  # of the transfer before
    for k in range(len(segments[0])):
        done = [[0.0] * pieces for _ in ranks]
        for rank in ranks:
            each = sum(segments[rank][k]) / pieces
            for piece in range(pieces):
                compute[rank] = max(compute[rank], arrived[piece]) + each
                done[rank][piece] = compute[rank]
        if k == len(transfers):
            break
        for piece in range(pieces):
            link = max(link, *(done[rank][piece] for rank in ranks)) + transfers[k] / pieces
            arrived[piece] = link
    return max(compute)


@pytest.mark.parametrize("pieces", [2, 4])
@pytest.mark.parametrize("ranks", thinned([1, 2, 3]))
@pytest.mark.parametrize("own_lane", [True, False])
def test_pieces_take_as_long_as_if_each_were_run(pieces: int, ranks: int, own_lane: bool) -> None:
    draw = random.Random(pieces * 10 + ranks)
    for _ in range(12):
        segments = [
            [[pieces * draw.randint(1, 90) for _ in range(draw.randint(1, 3))]
             for _ in range(LAYERS + 1)]
            for _ in range(ranks)
        ]  # fmt: skip
        transfers = [pieces * draw.randint(1, 150) for _ in range(LAYERS)]
        model = small_model(_step(segments, transfers, own_lane=own_lane))
        every = np.ones(len(model.facts.op), bool)
        blocked = list_blocking(model, model.is_comm, every, whole_runs=True)
        assert len(blocked) == LAYERS * ranks
        lengths = model.lengths().astype(np.float64)
        changed = cut_into(model, blocked, Pieces(pieces, lengths, lengths / pieces))
        assert period(changed) == _taken_in_turn(segments, transfers, pieces)
        assert period(hide_blocking(model, blocked)) <= period(model)
        if ranks == 1:
            assert period(hide_blocking(model, blocked)) <= period(changed) <= period(model)


def test_more_pieces_come_nearer_to_no_waiting() -> None:
    segments, transfers = [[[960]] * (LAYERS + 1)], [1440] * LAYERS
    model = small_model(_step(segments, transfers, own_lane=True))
    every = np.ones(len(model.facts.op), bool)
    blocked = list_blocking(model, model.is_comm, every, whole_runs=True)
    lengths = model.lengths().astype(np.float64)
    steps = [period(cut_into(model, blocked, Pieces(n, lengths, lengths / n))) for n in (2, 4, 16)]
    assert period(model) == 5 * 960 + 4 * 1440
    assert steps == [4 * 1440 + 2 * 960 // n for n in (2, 4, 16)]
    assert period(hide_blocking(model, blocked)) == 5 * 960


def test_what_has_compute_beside_it_or_blocks_one_rank_alone_stays() -> None:
    beside = small_model([
        Act("a", 100), Act("b", 100), Act("c", 100, waits=("t",)),
        comm("t", 80, "all_reduce", waits=("a",)),
    ])  # fmt: skip
    every = np.ones(4, bool)
    assert not list_blocking(beside, beside.is_comm, every, whole_runs=True)
    waits = [Act("a", 100), comm("t", 80, "all_reduce", waits=("a",), joined="t"),
             Act("c", 100, waits=("t",))]  # fmt: skip
    goes_on = [Act("a", 100, rank=1), Act("b", 150, rank=1), Act("c", 100, rank=1, waits=("t",)),
               comm("t", 80, "all_reduce", rank=1, waits=("a",), joined="t")]  # fmt: skip
    model = small_model([*waits, *goes_on])
    assert not list_blocking(model, model.is_comm, np.ones(7, bool), whole_runs=True)


def test_only_what_may_be_cut_is() -> None:
    """An optimizer's kernel between two transfers ends a run on either side."""
    acts = [
        Act("a", 100), comm("t0", 50, "all_reduce", waits=("a",)), Act("b", 60, waits=("t0",)),
        Act("adam", 30, family="optimizer"), Act("c", 40),
        comm("t1", 50, "all_reduce", waits=("c",)), Act("d", 100, waits=("t1",)),
    ]  # fmt: skip
    model = small_model(acts)
    names = [model.graph.activities.names[k] for k in model.graph.activities.name.tolist()]
    cut = np.array([f != "optimizer" for f in model.facts.family])
    runs = [
        ([names[k] for k in b.before], [names[k] for k in b.after])
        for b in list_blocking(model, model.is_comm, cut, whole_runs=True)
    ]
    assert runs == [(["a"], ["b"]), (["c"], ["d"])]
    nearest = list_blocking(model, model.is_comm, cut, whole_runs=False)
    assert [len(b.before) + len(b.after) for b in nearest] == [2, 2]
