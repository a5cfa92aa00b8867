"""Calls cut to windows, against a plain reading of the rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.intervals import merge_spans
from htk.quantities.derived.cut_calls import HostSpans, cut_calls, host_spans
from tests.tables import make

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=4)
CALLS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 15)), max_size=8
)


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans, begin and length, as begin and end, those that touch as one."""
    points = {t for begin, length in spans for t in range(begin, begin + length)}
    begins = sorted(t for t in points if t - 1 not in points)
    return [(t, next(e for e in range(t, 99) if e not in points)) for t in begins]


def cut_by_hand(begin: int, length: int, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if not length:
        return [(begin, begin)] if any(s <= begin < e for s, e in spans) else []
    parts = [(max(begin, s), min(begin + length, e)) for s, e in spans]
    return [(s, e) for s, e in parts if s < e]


@given(CALLS, SPANS, SPANS)
def test_calls_of_each_thread_are_cut_to_its_spans(
    calls: list[tuple[str, int, int]],
    of_a: list[tuple[int, int]],
    of_others: list[tuple[int, int]],
) -> None:
    calls = sorted(calls, key=lambda call: call[1])
    table = make(
        "cpu_ops",
        [
            {"name": str(k), "process": "1", "thread": thread, "start_ns": s, "end_ns": s + n}
            for k, (thread, s, n) in enumerate(calls)
        ],
    )
    spans = {"a": joined(of_a), "b": joined(of_others)}
    unions = {t: merge_spans(*np.array(s, np.int64).reshape(-1, 2).T) for t, s in spans.items()}
    cut = cut_calls(table, HostSpans(unions["b"], {("1", "a"): unions["a"]})).to_pylist()
    expected = [
        (str(k), *part)
        for k, (thread, begin, length) in enumerate(calls)
        for part in cut_by_hand(begin, length, spans[thread])
    ]
    assert sorted((r["name"], r["start_ns"], r["end_ns"]) for r in cut) == sorted(expected)
    assert [r["start_ns"] for r in cut] == sorted(r["start_ns"] for r in cut)


def test_spans_are_read_from_the_windows_of_the_host() -> None:
    rows = [
        {"of": "host", "start_ns": 5, "end_ns": 9},
        {"of": "host", "process": "1", "thread": "a", "start_ns": 1, "end_ns": 3},
        {"of": "recording", "device": 0, "start_ns": 0, "end_ns": 99},
    ]
    spans = host_spans(make("cut_windows", rows))
    assert [*spans.others.start, *spans.others.end] == [5, 9]
    assert [*spans.of_thread["1", "a"].start] == [1]
    assert [*spans.any_thread.start] == [1, 5]
