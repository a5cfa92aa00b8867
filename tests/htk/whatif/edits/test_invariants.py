"""What must hold of every step: drawn ones of two ranks, six activities each."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk.whatif.edits import find_edit, overlap
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, period, small_model

LENGTHS = st.integers(1, 300_000)
SHARED = {"group": 8, "per_node": 4, "in_bytes": 8 << 20, "out_bytes": 8 << 20}


@st.composite
def models(draw: Callable[[st.SearchStrategy[int]], int]) -> StepModel:
    acts = []
    moved = draw(LENGTHS), draw(LENGTHS)
    for rank in (0, 1):
        acts += [
            Act("a", draw(LENGTHS), rank=rank),
            Act("b", draw(LENGTHS), rank=rank, waits=("g",)),
            Act("c", draw(LENGTHS), rank=rank, backward=True),
            Act("d", draw(LENGTHS), rank=rank, waits=("r",), family="optimizer"),
            comm("g", moved[0], "all_gather", rank=rank, joined="g", **SHARED),
            comm("r", moved[1], "all_reduce", rank=rank, waits=("b",), joined="r", **SHARED),
        ]
    return small_model(acts, gpus_per_node=4)


def after(model: StepModel, name: str, value: str) -> int:
    return period(find_edit(name).apply(model, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replace", "a=1x"),
        ("batch", "1x"),
        ("world", "8"),
        ("network", "bandwidth=1x,latency=1x"),
        ("overlap", "today"),
        ("host", "1x"),
        ("accumulation", "1"),
        ("cp", "1"),
        ("pp", "1"),
        ("tp", "1"),
    ],
)
@settings(max_examples=settings.default.max_examples // 2)
@given(model=models())
def test_an_edit_to_what_is_changes_nothing(name: str, value: str, model: StepModel) -> None:
    assert after(model, name, value) == pytest.approx(period(model), abs=2)


@given(models(), st.floats(1, 50), st.floats(1, 50))
def test_more_bandwidth_never_hurts(model: StepModel, one: float, other: float) -> None:
    low, high = sorted((one, other))
    slower = after(model, "network", f"bandwidth={low:.3f}x")
    assert after(model, "network", f"bandwidth={high:.3f}x") <= slower <= period(model)


@given(models(), st.sampled_from("abcd"), st.floats(1, 50))
def test_a_faster_kernel_never_makes_a_longer_step(model: StepModel, name: str, x: float) -> None:
    assert after(model, "replace", f"^{name}={x:.3f}x") <= period(model)


@given(models())
def test_perfect_realistic_serial(model: StepModel) -> None:
    perfect, realistic, serial = (
        after(model, "overlap", value) for value in ("perfect", "realistic", "serial")
    )
    # Compute is slower beside transfers that were no longer waited for before, too.
    assert perfect <= realistic <= (1 + overlap.USUAL_CONTENTION) * serial + 2
    assert perfect <= period(model) <= serial + 2


@given(models())
def test_bounds_never_lose(model: StepModel) -> None:
    for name in ("no_skew", "remove_syncs", "overlap"):
        value = "perfect" if name == "overlap" else "on"
        assert after(model, name, value) <= period(model)


@given(models())
def test_a_graph_loses_no_more_than_zeroed_gradients(model: StepModel) -> None:
    of_optimizer = model.lengths()[model.facts.family.isin("optimizer")].sum()
    assert after(model, "graphs", "on") <= period(model) + of_optimizer
