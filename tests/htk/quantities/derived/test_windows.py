"""GPU steps, by hand and against a plain reading of their definition."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.derived.windows import cut_to_windows, fill_windows, rank_windows, step_windows
from tests.tables import make

UNCUT = make("cut_windows", [])
LAUNCHED = st.tuples(st.integers(-1, 4), st.integers(0, 40), st.integers(0, 10))


def steps_of(rows: list[tuple[int, int, int]], annotations: Any = None) -> list[Any]:
    """Step, start, end and completeness; rows are (launching step or -1, start, length)."""
    kernels = make("kernels", [{"start_ns": s, "end_ns": s + n} for _, s, n in rows])
    links = make("kernel_links", [{"step": k if k >= 0 else None} for k, _, _ in rows])
    empty = make("annotations", [])
    found = step_windows(kernels, links, empty if annotations is None else annotations, UNCUT)
    return [tuple(r[c] for c in ("step", "start_ns", "end_ns", "complete"))
            for r in found.to_pylist()]  # fmt: skip


def host_steps(*spans: tuple[int, int]) -> Any:
    rows = [{"step": k, "start_ns": s, "end_ns": e} for k, (s, e) in enumerate(spans)]
    return make("annotations", rows)


def test_a_step_ends_with_the_last_end_of_what_it_launched() -> None:
    rows = [(-1, 2, 3), (1, 5, 5), (2, 6, 2), (3, 12, 8), (-1, 20, 5)]
    assert steps_of(rows) == [
        (1, 2, 10, True),  # from the window's start: what was launched before belongs in it
        (2, 10, 10, True),  # launched later, done earlier: moves nothing
        (3, 10, 20, True),
        (None, 20, 25, False),  # after the last step
    ]


def test_without_steps_there_are_no_step_windows() -> None:
    assert steps_of([(-1, 0, 5)]) == []
    assert steps_of([]) == []


def test_a_step_that_the_recording_cut_is_marked() -> None:
    rows = [(0, 0, 10), (1, 10, 10), (2, 20, 3)]
    found = steps_of(rows, host_steps((0, 10), (10, 20), (20, 24)))
    assert [complete for *_, complete in found] == [True, True, False]


@given(st.lists(LAUNCHED, max_size=12))
def test_against_the_definition(rows: list[tuple[int, int, int]]) -> None:
    expected = []
    at = min((s for _, s, _ in rows), default=0)
    for k in sorted({k for k, _, _ in rows if k >= 0}):
        reach = max([at, *(s + n for step, s, n in rows if step == k)])
        expected.append((k, at, reach, True))
        at = reach
    high = max((s + n for _, s, n in rows), default=0)
    if expected and at < high:
        expected.append((None, at, high, False))
    found = steps_of(rows)
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert found[1:] == expected[1:], "of the first it may not be known when it began"


@given(st.lists(LAUNCHED, min_size=1, max_size=12))
def test_steps_tile_the_window(rows: list[tuple[int, int, int]]) -> None:
    found = steps_of(rows)
    edges = [(start, end) for _, start, end, _ in found]
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    if found:
        (whole,) = rank_windows(
            make("kernels", [{"start_ns": s, "end_ns": s + n} for _, s, n in rows]), UNCUT
        ).to_pylist()
        assert (edges[0][0], edges[-1][1]) == (whole["start_ns"], whole["end_ns"])


def test_each_device_of_each_rank_fills_its_own_windows() -> None:
    spans = [
        {"rank": 0, "device": 0, "kind": "compute", "start_ns": 0, "end_ns": 10},
        {"rank": 0, "device": 1, "kind": "compute", "start_ns": 0, "end_ns": 4},
        {"rank": 1, "device": 0, "kind": "compute", "start_ns": 5, "end_ns": 9},
    ]
    windows = [
        {"rank": 0, "device": 0, "start_ns": 0, "end_ns": 6},
        {"rank": 0, "device": 1, "start_ns": 1, "end_ns": 9},
        {"rank": 1, "device": 0, "start_ns": 0, "end_ns": 9},
    ]
    filled = fill_windows(make("activities", spans), make("rank_windows", windows))
    pieces = sorted(zip(filled.row.tolist(), filled.window.tolist(),
                        (filled.end - filled.start).tolist(), strict=True))  # fmt: skip
    assert pieces == [(0, 0, 6), (1, 1, 3), (2, 2, 4)]


LANES = [(rank, cycle, device) for rank in (1, 2) for cycle in (0, 1) for device in (0, 1, 3)]
SPANS = st.lists(st.tuples(st.sampled_from(LANES), st.integers(0, 30), st.integers(0, 9)))


@given(SPANS, st.lists(st.sampled_from(LANES), unique=True), st.integers(0, 12))
def test_spans_meet_the_windows_of_their_rank_cycle_and_device(
    spans: list[tuple[tuple[int, int, int], int, int]],
    lanes: list[tuple[int, int, int]],
    edge: int,
) -> None:
    """Two windows to a lane, one behind the other, in an order of lanes that means nothing."""
    names = ("rank", "cycle", "device", "start_ns", "end_ns")
    windows = [(*lane, low, low + 10) for low in (edge + 10, edge) for lane in lanes]
    rows = [(*lane, start, start + length) for lane, start, length in spans]
    found = cut_to_windows(
        make("activities", [dict(zip(names, row, strict=True)) for row in rows]),
        make("rank_windows", [dict(zip(names, row, strict=True)) for row in windows]),
    )
    pieces = {
        (row, window, t)
        for row, window, start, end in zip(*(c.tolist() for c in found), strict=True)
        for t in range(start, end)
    }
    assert pieces == {
        (r, w, t)
        for r, (*lane, start, end) in enumerate(rows)
        for w, (*of_window, low, high) in enumerate(windows)
        if lane == of_window
        for t in range(max(start, low), min(end, high))
    }


def test_recordings_of_each_device_run_from_the_first_start_to_the_last_end() -> None:
    spans = [(3, 20, 25), (1, 5, 9), (3, 4, 30), (0, 50, 60), (1, 7, 8), (3, 40, 41), (0, 55, 58)]
    kernels = [{"device": d, "start_ns": s, "end_ns": e} for d, s, e in spans]
    found = rank_windows(make("kernels", kernels), UNCUT).to_pylist()
    assert [(r["device"], r["step"], r["start_ns"], r["end_ns"], r["complete"]) for r in found] == [
        (0, None, 50, 60, True),
        (1, None, 5, 9, True),
        (3, None, 4, 41, True),
    ]


def test_steps_of_each_device_are_its_own() -> None:
    spans = [(1, 0, 5, 9), (0, 0, 2, 4), (1, 1, 9, 30), (0, 1, 6, 8), (2, -1, 0, 3), (2, 1, 5, 7)]
    kernels = make("kernels", [{"device": d, "start_ns": s, "end_ns": e} for d, _, s, e in spans])
    links = make("kernel_links", [{"step": k if k >= 0 else None} for _, k, _, _ in spans])
    found = step_windows(kernels, links, make("annotations", []), UNCUT).to_pylist()
    assert [(r["device"], r["step"], r["start_ns"], r["end_ns"]) for r in found] == [
        *[(0, 0, 2, 4), (0, 1, 4, 8)],
        *[(1, 0, 5, 9), (1, 1, 9, 30)],
        (2, 1, 0, 7),
    ]


@pytest.mark.parametrize(("length", "complete"), [(4, False), (5, True), (6, True)])
def test_a_last_step_of_less_than_half_the_others_is_cut(length: int, complete: bool) -> None:
    rows = [(k, 10 * k, 10) for k in range(3)]
    steps = host_steps((0, 8), (10, 20), (20, 32), (32, 32 + length))
    assert steps_of([*rows, (3, 32, length)], steps)[-1][-1] is complete


def test_a_step_after_an_unrecorded_gap_begins_with_its_own_first_activity() -> None:
    rows = [(3, 0, 5), (4, 5, 5), (13, 50, 6), (14, 56, 4)]
    recorded = make(
        "annotations",
        [
            {"step": k, "start_ns": s, "end_ns": s + 5}
            for k, s in ((3, 0), (4, 5), (13, 48), (14, 54))
        ],
    )
    assert steps_of(rows, recorded) == [
        (3, 0, 5, True),
        (4, 5, 10, True),
        (None, 10, 50, False),
        (13, 50, 56, True),
        (14, 56, 60, True),
    ]


def test_a_step_that_ran_nothing_on_the_gpu_is_no_gap() -> None:
    rows = [(1, 0, 5), (3, 20, 5)]
    recorded = make(
        "annotations", [{"step": k, "start_ns": 10 * k, "end_ns": 10 * k + 9} for k in (1, 2, 3)]
    )
    assert steps_of(rows, recorded) == [(1, 0, 5, True), (3, 5, 25, True)]


def begun(*rows: tuple[int, int, int]) -> list[bool]:
    """Return which steps are complete."""
    return [complete for step, *_, complete in steps_of(list(rows)) if step is not None]


def test_a_first_step_without_the_wait_that_others_begin_with_is_not_complete() -> None:
    """Each step waits 20 for data and works 10; the recording begins with the first work."""
    loading = ((0, 0, 10), (1, 30, 10), (2, 60, 10), (3, 90, 10))
    assert steps_of(list(loading))[0] == (0, 0, 10, False)
    assert begun(*loading) == [False, True, True, True]
    assert begun((0, 0, 30), (1, 31, 29), (2, 61, 29)) == [True, True, True], "waits little"
    assert begun((0, 0, 10)) == [True], "nothing to compare with"


@pytest.mark.parametrize(("first", "complete"), [(0, True), (-18, False)])
def test_of_two_steps_the_host_tells_whether_both_began_with_a_wait(
    first: int, complete: bool
) -> None:
    """The second waits 20; the first activity is launched at once, or 18 after the step began."""
    steps = host_steps((first, 11), (11, 41))
    assert steps_of([(0, 0, 10), (1, 30, 10)], steps) == [(0, 0, 10, complete), (1, 10, 40, True)]


def test_a_first_step_behind_work_of_before_waits_for_nothing_unrecorded() -> None:
    assert begun((-1, 0, 25), (0, 25, 10), (1, 35, 10), (2, 45, 10)) == [True, True, True]
