"""The change of a step by cause: each as it is felt after those before it, and nothing left."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from htk.whatif.step_model import StepModel
from htk.whatif.waterfall import split_change
from tests.htk.whatif.small_step_model import Act, comm, period, small_model


def step() -> StepModel:
    """1000 of compute, then 600 of communication that waits for it, and a copy beside it."""
    return small_model(
        [
            Act("a", 1000),
            comm("c", 600, "all_reduce", waits=("a",)),
            Act("copy", 400, lane="copies", kind="memory", family="memcpy"),
        ]
    )


def changed(compute: int, communication: int, memory: int) -> StepModel:
    edited = step().with_lengths(step().is_compute, compute)
    edited = edited.with_lengths(edited.is_comm, communication)
    return edited.with_lengths(edited.graph.activities.kind == 2, memory)


def by_cause(edited: StepModel, scale: float = 1.0) -> dict[str, int]:
    before = period(step())
    return split_change(edited, before, period(edited) - before, scale)


def test_by_hand() -> None:
    assert by_cause(step()) == {}
    assert by_cause(changed(700, 900, 400)) == {"compute": -300, "communication": 300}
    assert by_cause(changed(1000, 600, 1500)) == {}, "hidden behind 1600"
    assert by_cause(changed(500, 600, 1500)) == {"compute": -500, "memory": 400}
    assert by_cause(changed(500, 600, 1500), scale=2.0) == {"compute": -1000, "memory": 800}


def test_time_that_is_added_to_the_step_and_what_nothing_explains() -> None:
    edited = replace(changed(700, 600, 400), added={"pipeline": 90, "compute": 10})
    before, change = period(step()), -250
    found = split_change(edited, before, change, 1.0)
    assert found == {"compute": -290, "pipeline": 90, "host": -50}


@given(*[st.integers(0, 2000)] * 3, st.sampled_from([0.3, 1.0, 1.7]))
def test_causes_sum_to_the_change(compute: int, comm_ns: int, memory: int, scale: float) -> None:
    edited, before = changed(compute, comm_ns, memory), period(step())
    found = split_change(edited, before, period(edited) - before, scale)
    assert sum(found.values()) == round((period(edited) - before) * scale)
    assert all(found.values()), "no cause of nothing"
