"""Transfers and the compute that could run beside them, on steps worked out on paper."""

from collections.abc import Sequence

import numpy as np
import pytest

from htk.whatif.hideable import HideableTransfers, Payload, find_hideable
from tests.htk.whatif.small_step_model import Act, comm, small_model
from tests.thinned import thinned

WEIGHTS = {"in_bytes": 1 << 20, "out_bytes": 1 << 22, "lane": "compute"}
GRADIENTS = {"in_bytes": 1 << 22, "out_bytes": 1 << 20, "lane": "compute"}
BUCKET = {"in_bytes": 1 << 24, "out_bytes": 1 << 24, "lane": "compute"}
# Two units and the optimizer, all on one stream.
FSDP = (
    comm("g1", 30, "all_gather", **WEIGHTS),
    Act("f1", 100),
    comm("g2", 40, "all_gather", **WEIGHTS),
    Act("f2", 100),
    Act("b2", 60, backward=True),
    comm("r2", 80, "reduce_scatter", backward=True, **GRADIENTS),
    Act("b1", 50, backward=True),
    comm("r1", 20, "reduce_scatter", backward=True, **GRADIENTS),
    Act("o", 10, family="optimizer"),
)


def hideable(acts: Sequence[Act], name: str) -> int:
    return value_of(acts, name, "hideable")


def value_of(acts: Sequence[Act], name: str, column: str) -> int:
    model = small_model(acts)
    transfers = find_hideable(model, model.graph.time)
    names = [model.graph.activities.names[k] for k in model.graph.activities.name.tolist()]
    return int(getattr(transfers, column)[names.index(name)])


def transfers_of(acts: Sequence[Act]) -> HideableTransfers:
    model = small_model(acts)
    return find_hideable(model, model.graph.time)


def test_a_gather_hides_beside_the_unit_before_its_own() -> None:
    assert hideable(FSDP, "g2") == 40


def test_the_first_gather_has_nothing_before_it() -> None:
    assert hideable(FSDP, "g1") == 0


def test_a_gather_hides_no_longer_than_the_unit_before_computes() -> None:
    short = (FSDP[0], Act("f1", 25), *FSDP[2:])
    assert hideable(short, "g2") == 25


def test_gradients_hide_beside_the_backward_pass() -> None:
    # b1, 50, has room for 50 of the 80; b2 made what r2 reduces, bit by bit.
    assert hideable(FSDP, "r2") == 80
    assert hideable(FSDP, "r1") == 20


def test_gradients_share_the_backward_pass() -> None:
    # 110 of backward compute for 90 of r1, which begin once b2 is over, and 80 of r2: r1 takes 50
    # of b1, and r2 what is left of the 110.
    long = (*FSDP[:7], comm("r1", 90, "reduce_scatter", backward=True, **GRADIENTS), FSDP[8])
    assert hideable(long, "r1") == 50
    assert hideable(long, "r2") == 60


def test_the_optimizer_waits_for_gradients() -> None:
    last = (Act("b", 100, backward=True), comm("r", 40, "all_reduce", backward=True, **BUCKET))
    step = (Act("f", 300), *last, Act("o", 1000, family="optimizer"))
    assert hideable(step, "r") == 40
    assert hideable((Act("f", 300), Act("b", 30, backward=True), *step[2:]), "r") == 30


def test_what_is_beside_compute_is_not_exposed() -> None:
    beside = (
        Act("f", 100),
        Act("b", 60, backward=True),
        comm("r", 100, "all_reduce", waits=("f",), in_bytes=1 << 24, out_bytes=1 << 24),
        Act("o", 10, family="optimizer", waits=("r",)),
    )
    assert value_of(beside, "r", "exposed") == 40
    assert hideable(beside, "r") == 0  # all of the backward pass has it beside it already


def test_activations_are_needed_at_once() -> None:
    step = (Act("a", 100), comm("t", 50, "all_to_all", lane="compute"), Act("b", 100))
    assert value_of(step, "t", "carried") == Payload.ACTIVATIONS
    assert value_of(step, "t", "exposed") == 50
    assert hideable(step, "t") == 0


def test_a_transfer_hides_as_far_as_on_the_busiest_rank() -> None:
    other = [Act("f1", 15, rank=1) if act.name == "f1" else act_of_rank(act) for act in FSDP]
    joined = [joined_act(act) for act in (*FSDP, *other)]
    assert hideable(joined, "g2") == 15


def act_of_rank(act: Act) -> Act:
    return Act(**{**vars(act), "rank": 1})


def joined_act(act: Act) -> Act:
    return Act(**{**vars(act), "joined": act.name if act.kind == "comm" else None})


@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_hidden_time_fits_beside_compute(seed: int) -> None:
    """No more is hidden than is exposed, nor than the GPU computes with no transfer beside it; held
    to a twin that walks the nanoseconds."""
    random = np.random.default_rng(seed)
    acts = [Act(**{**vars(act), "length": int(random.integers(1, 120))}) for act in FSDP]
    transfers = transfers_of(acts)
    free = sum(act.length for act in acts if act.kind == "compute" and act.name != "o")
    comm_ns = {act.name: act.length for act in acts if act.kind == "comm"}
    assert (transfers.hideable <= transfers.exposed).all()
    assert int(transfers.exposed.sum()) == sum(comm_ns.values())
    assert int(transfers.hideable.sum()) <= free
    assert hideable(acts, "g2") == min(comm_ns["g2"], acts[1].length)
    b2, b1 = acts[4].length, acts[6].length
    r1 = min(comm_ns["r1"], b1)
    assert hideable(acts, "r1") == r1
    assert hideable(acts, "r2") == min(comm_ns["r2"], b2 + b1 - r1)
