"""Idle time that stalls of the host explain: worked out by hand, and against a twin by loops."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE
from htk.quantities.derived.explained_idle import Explained, Stalls, explain_idle
from htk.quantities.derived.stalls import LONG_NS
from tests.tables import make

MS = 1_000_000
AFTER = ("host_sync", "host_operator", "host_python", "launch_latency")


def stall(cause: str, start: int, end: int, rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "cause": cause, "name": cause, "start_ns": start, "end_ns": end} | more


def piece(cause: str, start: int, end: int, rank: int = 0, **more: Any) -> dict[str, Any]:
    """A piece of a gap that begins with it, unless `gap_start_ns` says otherwise."""
    times = {"gap_start_ns": start, "start_ns": start, "end_ns": end}
    return {"rank": rank, "cause": cause} | times | more


def asked(stalls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> list[tuple[int, int]]:
    answer = explain_idle(Stalls.from_table(make("stalls", stalls)), make("idle_causes", pieces))
    assert isinstance(answer, Explained)
    return list(zip(answer.stall.tolist(), answer.idle_ns.tolist(), strict=True))


def test_a_piece_within_a_stall_is_that_stalls() -> None:
    """On three ranks at equal times; rank 2 did something else, and another cause explains none."""
    stalls = [
        stall("host_sync", 10, 60, rank=1),
        stall("host_sync", 10, 90, rank=0),
        stall("host_data_loading", 0, 200, rank=2),
        stall("host_sync", 100, 130, rank=0),
    ]
    pieces = [
        piece("host_sync", 20, 30, rank=0),
        piece("host_sync", 20, 30, rank=1),
        piece("host_sync", 20, 30, rank=2),
        piece("host_sync", 110, 120, rank=0),
        piece("host_data_loading", 150, 180, rank=2),
        piece("host_data_loading", 20, 30, rank=1),
        piece("host_sync", 95, 98, rank=0),
    ]
    assert asked(stalls, pieces) == [
        (1, 10), (0, 10), (NONE, 0), (3, 10), (2, 30), (NONE, 0), (NONE, 0)
    ]  # fmt: skip


def test_a_cycle_is_no_other_cycles_host() -> None:
    stalls = [stall("host_sync", 0, 50, cycle=1)]
    assert asked(stalls, [piece("host_sync", 10, 20), piece("host_sync", 10, 20, cycle=1)]) == [
        (NONE, 0), (0, 10)
    ]  # fmt: skip


def test_a_call_explains_after_it_no_more_than_it_blocked() -> None:
    """It blocks for 100; the GPU runs dry half-way: 50 remain for what follows, 30 and then 20.

    On the second device the gap begins later, so that 20 are idle in the call and 80 remain.
    """
    stalls = [stall("host_sync", 100, 200)]
    first = {"gap_start_ns": 150}
    second = {"gap_start_ns": 180, "device": 1}
    pieces = [
        piece("launch_latency", 230, 260, **first),  # not in order of time
        piece("host_sync", 150, 200, **first),
        piece("host_operator", 200, 230, **first),
        piece("host_python", 260, 400, **first),
        piece("host_sync", 180, 200, **second),
        piece("host_python", 200, 270, **second),
        piece("launch_latency", 270, 300, **second),
    ]
    assert asked(stalls, pieces) == [(0, 20), (0, 50), (0, 30), (0, 0), (0, 20), (0, 70), (0, 10)]


def test_a_long_operator_keeps_what_the_call_before_it_cannot_explain() -> None:
    """The call blocked 3 ms, all while the GPU worked: it explains 2 ms after it, but not 4 ms."""
    stalls = [stall("host_sync", 0, 3 * MS), stall("host_operator", 3 * MS, 9 * MS)]
    for length, answer in ((2 * MS, (0, 2 * MS)), (4 * MS, (1, 4 * MS))):
        after = piece("host_operator", 3 * MS, 3 * MS + length, gap_start_ns=3 * MS - 1)
        assert asked(stalls, [after]) == [answer]
    # A short piece is no matter of an operator, however long that is.
    assert asked(stalls[1:], [piece("host_operator", 4 * MS, 5 * MS - 1)]) == [(NONE, 0)]
    assert asked(stalls[1:], [piece("host_operator", 4 * MS, 5 * MS)]) == [(0, MS)]


def test_work_that_was_not_recorded_is_waited_for_in_a_call() -> None:
    stalls = [stall("host_sync", 0, 50)]
    assert asked(stalls, [piece("unrecorded_gpu_work_suspected", 10, 30)]) == [(0, 20)]


def test_without_stalls_nothing_is_explained() -> None:
    assert asked([], [piece("host_sync", 10, 20)]) == [(NONE, 0)]
    assert asked([stall("host_sync", 0, 5)], []) == []


STALLS = st.lists(
    st.builds(
        lambda cause, rank, start, length: stall(cause, start * MS, (start + length) * MS, rank),
        st.sampled_from(("host_sync", "host_operator", "host_data_loading")),
        st.integers(0, 1),
        st.integers(0, 12),
        st.integers(1, 6),
    ),
    max_size=5,
)
CAUSES = st.sampled_from((*AFTER, "host_data_loading", "unrecorded_gpu_work_suspected"))


@st.composite
def gaps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Gaps of two devices on two ranks, cut into pieces one behind the other."""
    pieces = []
    for rank, device in ((0, 0), (0, 1), (1, 0)):
        at = draw(st.integers(0, 8))
        for _ in range(draw(st.integers(0, 2))):
            begun = at
            for _ in range(draw(st.integers(1, 3))):
                length = draw(st.integers(1, 3))
                pieces.append(
                    piece(draw(CAUSES), at * MS, (at + length) * MS, rank, device=device,
                          gap_start_ns=begun * MS)
                )  # fmt: skip
                at += length
            at += draw(st.integers(1, 4))
    return draw(st.permutations(pieces))


def begun_last(stalls: list[dict[str, Any]], rank: int, cause: str, start: int, end: int) -> int:
    """The stall of that cause that began last before a span ended, if it had not ended before."""
    rows = [
        k
        for k, s in enumerate(stalls)
        if (s["rank"], s["cause"]) == (rank, cause) and s["start_ns"] < end
    ]
    last = max(rows, key=lambda k: (stalls[k]["start_ns"], k), default=NONE)
    return last if last != NONE and stalls[last]["end_ns"] >= start else NONE


def twin(stalls: list[dict[str, Any]], pieces: list[dict[str, Any]]) -> list[tuple[int, int]]:
    answers = [(NONE, 0)] * len(pieces)
    spent: dict[tuple[int, int, int], int] = {}
    drained = {}
    for k, p in enumerate(pieces):
        gap = p["rank"], p["device"], p["gap_start_ns"]
        drained[k] = begun_last(stalls, p["rank"], "host_sync", gap[2], gap[2] + 1)
        cause = "host_sync" if p["cause"].startswith("unrecorded") else p["cause"]
        length = p["end_ns"] - p["start_ns"]
        if cause not in ("host_sync", "host_operator", "host_data_loading"):
            continue
        if cause == "host_operator" and length < LONG_NS:
            continue
        row = begun_last(stalls, p["rank"], cause, p["start_ns"], p["end_ns"])
        answers[k] = (row, length if row != NONE else 0)
        if row != NONE and row == drained[k]:
            spent[gap] = spent.get(gap, 0) + length
    for k in sorted(drained, key=lambda k: pieces[k]["start_ns"]):
        p, call = pieces[k], drained[k]
        long_operator = p["cause"] == "host_operator" and answers[k][0] != NONE
        if call == NONE or p["cause"] not in AFTER or (answers[k][0] != NONE and not long_operator):
            continue
        gap = p["rank"], p["device"], p["gap_start_ns"]
        length = p["end_ns"] - p["start_ns"]
        left = stalls[call]["end_ns"] - stalls[call]["start_ns"] - spent.get(gap, 0)
        taken = min(max(left, 0), length)
        spent[gap] = spent.get(gap, 0) + length
        if not long_operator or taken == length:
            answers[k] = (call, taken)
    return answers


@given(STALLS, gaps())
def test_as_a_loop_over_stalls_says(
    stalls: list[dict[str, Any]], pieces: list[dict[str, Any]]
) -> None:
    assert asked(stalls, pieces) == twin(stalls, pieces)
