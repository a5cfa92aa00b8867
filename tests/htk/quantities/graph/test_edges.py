"""Edges under construction: every node has one number, every edge its kind."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.edges import KINDS, Edges, _add_launch_edges, _add_stream_edges
from htk.quantities.graph.nodes import Activities, LaunchCalls


def test_starts_ends_calls_and_arrivals_have_numbers_of_their_own() -> None:
    edges = Edges(activities=5, calls=3)
    five, three = np.arange(5), np.arange(3)
    nodes = [edges.start(five), edges.end(five), edges.call_start(three), edges.call_end(three)]
    assert sorted(np.concatenate(nodes).tolist()) == list(range(2 * 5 + 2 * 3))
    assert edges.join(np.array([0])).tolist() == [16]


def test_an_edge_keeps_where_its_weight_comes_from() -> None:
    edges = Edges(activities=3, calls=1)
    ends = np.array([3, 4]), np.array([1, 2])
    edges.add("stream", *ends, np.array([0.0, 7.0]), True)
    edges.add("launch", *ends, np.array([5, 6]), np.array([True, False]))
    (_, _, first, stream, seen), (_, _, _, launch, partly) = edges.parts
    assert (KINDS[stream], KINDS[launch]) == ("stream", "launch")
    assert first.dtype == np.int64 and first.tolist() == [0, 7]
    assert seen.tolist() == [True, True] and partly.tolist() == [True, False]


class Kernel(NamedTuple):
    """An activity, by what lies between it and the one before it on its stream."""

    gap: int
    length: int
    delay: int | None  # since its launch began; None: no launch was recorded


GAPS = st.sampled_from([-3, 0, 1, 5, 400, 20_000, 20_001, 90_000])
DELAYS = st.sampled_from([None, -5, 0, 1, 40, 300, 5_000, 99_999, 100_000, 100_001, 400_000])
KERNELS = st.builds(Kernel, GAPS, st.integers(4, 30_000), DELAYS)
STREAMS = st.lists(st.tuples(st.booleans(), st.lists(KERNELS, min_size=1, max_size=5)), max_size=3)


def step(streams: list[tuple[bool, list[Kernel]]]) -> tuple[Activities, LaunchCalls]:
    """Streams one after the other; of some an activity ended before the step began, at 7."""
    rows = []
    for lane, (has_earlier, kernels) in enumerate(streams):
        end = 200_000 * lane
        for k, kernel in enumerate(kernels):
            start = end + kernel.gap + 10
            end = start + kernel.length
            rows.append((lane, start, end, 7 if has_earlier and not k else -1, kernel.delay))
    lane, start, end, before = (np.array([r[k] for r in rows], np.int64) for k in range(4))
    linked = [k for k, row in enumerate(rows) if row[4] is not None]
    call = np.full(len(rows), -1)
    call[linked] = np.arange(len(linked))
    issued = np.array([rows[k][1] - (rows[k][4] or 0) for k in linked], np.int64)
    issued = np.append(issued, 0)  # a call that launches nothing: no graph is without calls
    zero = np.zeros(len(rows) + 1, np.int64)
    of_act, of_call = zero[: len(rows)], zero[: len(issued)]
    acts = Activities(of_act, of_act, lane, of_act, start, end, of_act, ["k"], of_act, call, before)
    calls = LaunchCalls(
        of_call, of_call, of_call, issued, issued + 2, of_call, ["launch"], of_call, of_call - 1
    )
    return acts, calls


def neighbours(acts: Activities) -> Iterator[tuple[int, int]]:
    for k in range(1, len(acts.start)):
        if acts.lane[k] == acts.lane[k - 1]:
            yield k - 1, k


def tenth(values: list[int]) -> int:
    return int(np.quantile(values, 0.1)) if values else 0


@given(STREAMS.filter(bool))
def test_order_on_a_stream_as_asked_pair_by_pair(streams: list[tuple[bool, list[Kernel]]]) -> None:
    """Gaps of up to 20 us between what was launched in time are the stream's; longer ones are as
    short as those; neighbours that overlap keep their lead."""
    acts, calls = step(streams)
    edges, many = Edges(len(acts.start), len(calls.start)), len(acts.start)
    _add_stream_edges(edges, acts, calls)

    def is_own(a: int, b: int) -> bool:
        call = acts.call[b]
        in_time = call < 0 or calls.start[call] < acts.end[a]
        return bool(in_time and acts.start[b] - acts.end[a] <= 20_000)

    gaps = {(a, b): int(acts.start[b] - acts.end[a]) for a, b in neighbours(acts)}
    least = tenth([gap for pair, gap in gaps.items() if gap >= 0 and is_own(*pair)])
    expected = set()
    for (a, b), gap in gaps.items():
        if gap < 0:
            expected.add((a, b, int(acts.start[b] - acts.start[a])))
        else:
            expected.add((many + a, b, gap if is_own(a, b) else least))
    seen = zip(*(c.tolist() for c in (edges.src, edges.dst, edges.weight)), strict=True)
    assert sorted(seen) == sorted(expected) and edges.observed.all()
    firsts = [k for k in range(many) if not k or acts.lane[k] != acts.lane[k - 1]]
    lasts = [*(k - 1 for k in firsts[1:]), many - 1]
    wraps = [
        (many + last, first, min(max(int(acts.start[first]) - 7, 0), least), 7)
        for first, last in zip(firsts, lasts, strict=True)
        if acts.before[first] >= 0
    ]
    columns = (edges.wrap_src, edges.wrap_dst, edges.wrap_weight, edges.wrap_seen)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == wraps


@given(STREAMS.filter(bool))
def test_launches_as_asked_one_by_one(streams: list[tuple[bool, list[Kernel]]]) -> None:
    """On an idle stream a launch takes as long as it took, up to four times the usual; all else
    takes as long as the quickest tenth, or as little as was left."""
    acts, calls = step(streams)
    edges = Edges(len(acts.start), len(calls.start))
    _add_launch_edges(edges, acts, calls)
    before = dict((b, int(acts.end[a])) for a, b in neighbours(acts))
    idle, delay = {}, {}
    for k in np.flatnonzero(acts.call >= 0).tolist():
        begun = int(calls.start[acts.call[k]])
        earlier = before.get(k, int(acts.before[k]) if acts.before[k] >= 0 else None)
        delay[k] = int(acts.start[k]) - begun
        idle[k] = (earlier is None or earlier <= begun) and delay[k] >= 0
    seen = [delay[k] for k in delay if idle[k] and delay[k] <= 100_000]
    least, most = tenth(seen), 4 * int(np.median(seen)) if seen else 0
    expected = {
        k: delay[k] if idle[k] and delay[k] <= most else min(max(delay[k], 0), least) for k in delay
    }
    assert dict(zip(edges.dst.tolist(), edges.weight.tolist(), strict=True)) == expected
    issued = edges.src - 2 * len(acts.start)
    assert issued.tolist() == acts.call[acts.call >= 0].tolist()
