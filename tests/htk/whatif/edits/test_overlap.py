"""Communication hidden, or not."""

import pytest

from htk.whatif.edits import overlap
from tests.htk.whatif.beside import every_other_beside
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

# a 100, then b 100 which waits for g; g 150 from the start: 150 + 100
STEP = (
    Act("a", 100),
    Act("b", 100, waits=("g",)),
    comm("g", 150, "all_gather"),
)


def test_today() -> None:
    assert period(overlap.apply(small_model(STEP), "today")) == 250


def test_perfect_leaves_compute() -> None:
    assert period(overlap.apply(small_model(STEP), "perfect")) == 200


def test_perfect_still_needs_its_link() -> None:
    long = (*STEP[:2], comm("g", 250, "all_gather"))
    assert period(small_model(long)) == 350
    assert period(overlap.apply(small_model(long), "perfect")) == 250


def test_perfect_waits_for_whom_is_late() -> None:
    fast = [Act("a", 10), comm("g", 50, "all_reduce", waits=("a",), joined="g")]
    slow = [
        Act("a", 100, rank=1),
        comm("g", 50, "all_reduce", rank=1, waits=("a",), joined="g"),
    ]
    ends = [Act("b", 10, waits=("g",)), Act("b", 10, rank=1, waits=("g",))]
    model = small_model([*fast, *slow, *ends])
    assert period(model) == 160
    assert period(overlap.apply(model, "perfect")) == 110


def test_serial_runs_in_the_order_of_launches() -> None:
    # c waits for g, which is launched before it; h, launched last, runs last: 50 + 80 + 50 + 100
    step = (
        Act("a", 50),
        comm("g", 80, "all_gather"),
        Act("c", 50, waits=("g",)),
        comm("h", 100, "reduce_scatter", lane="other", waits=("a",)),
    )
    assert period(small_model(step)) == 150
    assert period(overlap.apply(small_model(step), "serial")) == 280


def test_serial_leaves_waiting_for_late_ranks_where_it_is() -> None:
    # Rank 1 computes 60 more before the collective, during which g of rank 0 waits and moves
    # nothing: in turn they take 100 + 40 + 30, and not what g was seen running for besides.
    early = [
        Act("a", 40),
        comm("g", 40, "all_reduce", waits=("a",), joined="g"),
        Act("b", 30),
    ]
    late = [
        Act("a", 100, rank=1),
        comm("g", 40, "all_reduce", rank=1, waits=("a",), joined="g"),
        Act("b", 30, rank=1),
    ]
    assert period(overlap.apply(small_model([*early, *late]), "serial")) == 170


def test_serial_takes_transfers_as_long_as_with_no_compute_beside_them() -> None:
    serial = period(overlap.apply(every_other_beside(), "serial"))
    assert serial == pytest.approx(16 * (10 + 1000 + 1100), rel=0.001)


def test_serial_adds_what_was_hidden() -> None:
    assert period(overlap.apply(small_model(STEP), "serial")) == 350  # 100 of g beside a


def test_realistic_slows_compute_by_what_it_hides() -> None:
    # All 40 of the second unit's gather fit beside the first unit, whose 100 they slow down with
    # the rest of the compute: 0.189 of 40.
    unit = {"in_bytes": 1 << 20, "out_bytes": 1 << 22}
    step = (
        comm("g1", 30, "all_gather", lane="compute", **unit),
        Act("f1", 100),
        comm("g2", 40, "all_gather", lane="compute", **unit),
        Act("f2", 100),
        comm("r", 20, "reduce_scatter", lane="compute", in_bytes=1 << 22, out_bytes=1 << 20),
    )
    assert period(small_model(step)) == 290
    hidden = period(overlap.apply(small_model(step), "realistic"))
    assert hidden == pytest.approx(290 - 40 + 0.189 * 40, abs=2)


def test_realistic_hides_no_activations() -> None:
    step = (
        Act("a", 100),
        comm("r", 50, "all_to_all", waits=("a",)),
        Act("b", 100, waits=("r",)),
    )
    assert period(small_model(step)) == 250
    assert period(overlap.apply(small_model(step), "perfect")) == 200
    assert period(overlap.apply(small_model(step), "realistic")) == 250


def test_realistic_reduces_gradients_beside_the_backward_pass_alone() -> None:
    # 300 of gradients, 100 of backward compute that they can run beside, and slow down by 0.189:
    # 200 are left, though the forward pass, 250, would have room for them.
    step = (
        Act("f", 250),
        Act("b", 100, backward=True),
        comm("g", 300, "all_reduce", waits=("b",), in_bytes=1 << 24, out_bytes=1 << 24),
        Act("o", 10, family="optimizer", waits=("g",)),
    )
    assert period(small_model(step)) == 660
    hidden = period(overlap.apply(small_model(step), "realistic"))
    assert hidden == pytest.approx(660 - 100 + 0.189 * 100, abs=2)
