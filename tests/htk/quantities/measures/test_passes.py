"""Phases of rows, and of the host's time between operators: against asking every instant."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE
from htk.base.names.phases import BACKWARD, FORWARD, OPTIMIZER, OTHER
from htk.quantities.measures.passes import (
    between_operators,
    is_backward,
    naming_ranges,
    phase_codes,
    phases_of_ranges,
    threads_of,
)
from tests.tables import make

NAMES = {"forward": FORWARD, "backward": BACKWARD, "optimizer.step": OPTIMIZER}


def test_phases_of_rows() -> None:
    passes = make("kernel_passes", [{"phase": p} for p in ("backward", None, "forward", "other")])
    assert phase_codes(passes).tolist() == [BACKWARD, NONE, FORWARD, OTHER]
    assert is_backward(passes).tolist() == [True, False, False, False]


def span(name: str, start: int, end: int, thread: str = "1", **more: Any) -> dict[str, Any]:
    times = {"start_ns": start, "end_ns": end, "process": "1", "thread": thread}
    return {"name": name, "on_gpu": False} | times | more


def test_ranges_that_name_a_phase() -> None:
    """Steps and ranges of the GPU's timeline name none, nor do other words."""
    annotations = make("annotations", [
        span("forward", 0, 1), span("ProfilerStep#1", 0, 1, step=1), span("evaluate", 0, 1),
        span("backward", 0, 1, on_gpu=True), span("Optimizer.step#AdamW.step", 0, 1),
    ])  # fmt: skip
    naming = naming_ranges(annotations)
    assert naming["name"].to_pylist() == ["forward", "Optimizer.step#AdamW.step"]
    assert phases_of_ranges(naming).tolist() == [FORWARD, OPTIMIZER]


def test_threads_have_one_number_in_all_tables() -> None:
    """Equal ids on two ranks, or of two processes, are different threads."""
    rows = [("1", "1", 0), ("1", "2", 0), ("2", "1", 0), ("1", "1", 3)]
    listed = [{"process": p, "thread": t, "rank": r} for p, t, r in rows]
    ops, ranges = threads_of(make("cpu_ops", listed), make("annotations", listed[::-1]))
    assert ops.tolist() == ranges.tolist()[::-1] and len(set(ops.tolist())) == 4


# Per thread two ranges, the second within the first, and operators one after another.
PIECES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), max_size=5)
THREAD = st.tuples(
    st.sampled_from(sorted(NAMES)), st.sampled_from(sorted(NAMES)),
    st.integers(0, 8), st.integers(6, 12), PIECES,
)  # fmt: skip


@given(st.lists(THREAD, max_size=2))
def test_time_of_ranges_less_their_operators(threads: list[Any]) -> None:
    annotations, ops, expected = [], [], 0
    by_phase: dict[int, int] = {}
    for number, (outer, inner, start, length, pieces) in enumerate(threads):
        thread = str(number)
        annotations += [span(outer, 0, 30, thread), span(inner, start, start + length, thread)]
        own, clock = [], 0
        for gap, size in pieces:
            own.append((clock + gap, clock + gap + size))
            clock += gap + size
        for low, high in own:
            ops.append(span("aten::mm", low, high, thread))
        for t in range(30):
            if any(low <= t < high for low, high in own):
                continue
            phase = NAMES[inner] if start <= t < start + length else NAMES[outer]
            by_phase[phase] = by_phase.get(phase, 0) + 1
            expected += 1
    times = between_operators(
        make("cpu_ops", ops), make("op_links", [{"depth": 0}] * len(ops)),
        make("annotations", annotations),
    )  # fmt: skip
    totals: dict[int, int] = {}
    for phase, length in zip(times.phase.tolist(), (times.end - times.start).tolist(), strict=True):
        totals[phase] = totals.get(phase, 0) + length
    assert totals == by_phase and sum(totals.values()) == expected
