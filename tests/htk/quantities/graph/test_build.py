"""A graph of two ranks with three streams each, edge by edge, worked out on paper.

        0  2  5  9            35 36          56 57     67         100  102
    launches a b c d, all-reduce n, then a synchronising call that returns at 102
    stream  7   a 5-35, c 36-56, d 57-67
    stream 20   b 9-59
    stream 22   n 60-100

Times are µs; a step takes 200. Rank 1 does the same 10 later, but its all-reduce ends at 100 too.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.build import CATEGORIES, Graph, StepEvents, _number_nodes, build_graph
from htk.quantities.graph.edges import KINDS, Edges
from htk.traces.trace.opening import open_trace
from tests.htk.whatif.small_step_model import Act, comm, small_model
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
KERNELS = {"a": (5, 30, 7), "b": (9, 50, 20), "c": (36, 20, 7), "n": (60, 40, 22), "d": (57, 10, 7)}


def synchronise(ts: float, dur: float) -> Event:
    return launch(99, ts, dur) | {"name": "cudaDeviceSynchronize", "args": {}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("two_ranks")
    for rank in (0, 1):
        late, events = 10 * rank, []
        for k in range(3):
            begin = 200 * k + late
            events += [step(k, begin - late, 200), op("aten::mm", begin, 19)]
            for number, (name, (start, length, stream)) in enumerate(KERNELS.items()):
                correlation = 10 * k + number + 1
                events.append(launch(correlation, begin + 4 * number, 2))
                if name == "n":
                    name, length = COMM, length - late
                events.append(kernel(name, begin + start, length, correlation, stream))
            events.append(synchronise(begin + 20, 82))
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return build_graph(open_trace(str(folder)).tables, 1)


def labels(graph: Graph) -> dict[int, str]:
    """What each node is: a0+ and a0- are start and end of kernel a on rank 0, A0 its call."""
    acts, calls = graph.activities, graph.calls
    names = {}
    letter_of_call = dict.fromkeys(range(len(calls.start)), "S")
    for row in range(len(acts.start)):
        letter = acts.names[acts.name[row]]
        letter = "n" if letter == COMM else letter
        letter_of_call[int(acts.call[row])] = letter.upper()
        names[int(graph.start[row])] = f"{letter}{acts.rank[row]}+"
        names[int(graph.end[row])] = f"{letter}{acts.rank[row]}-"
    for row, letter in letter_of_call.items():
        names[int(graph.call_start[row])] = f"{letter}{calls.rank[row]}+"
        names[int(graph.call_end[row])] = f"{letter}{calls.rank[row]}-"
    return names


def edges(graph: Graph, *kinds: str) -> set[tuple[str, str, int]]:
    """Edges of these kinds: tail, head, weight in ns; the arrival of all ranks is "all"."""
    names, chosen = labels(graph), graph.edges(*kinds)
    columns = (c[chosen].tolist() for c in (graph.src, graph.dst, graph.weight))
    rows = [(names.get(s, "all"), names.get(d, "all"), w) for s, d, w in zip(*columns, strict=True)]
    assert len(set(rows)) == len(rows)
    return set(rows)


def of_both(*rows: tuple[str, str, float]) -> set[tuple[str, str, int]]:
    """Edges that both ranks have; weights in µs."""
    return {
        (tail.replace("*", str(rank)), head.replace("*", str(rank)), round(1000 * weight))
        for tail, head, weight in rows
        for rank in (0, 1)
    }


def test_nodes_keep_the_times_of_what_they_stand_for(graph: Graph) -> None:
    acts, calls = graph.activities, graph.calls
    assert (len(acts.start), len(calls.start)) == (10, 12)
    assert graph.ranks == [0, 1]
    for nodes, times in (
        (graph.start, acts.start),
        (graph.end, acts.end),
        (graph.call_start, calls.start),
        (graph.call_end, calls.end),
    ):
        assert graph.time[nodes].tolist() == times.tolist()
    own = np.concatenate([graph.start, graph.end, graph.call_start, graph.call_end])
    (joined,) = set(range(len(graph.time))) - set(own.tolist())
    assert len(set(own.tolist())) == 2 * (10 + 12)
    assert graph.time[joined] == 200_000 + 70_000 - 5_000  # rank 1 arrives; times are since 5 µs
    assert (np.diff(graph.time) >= 0).all() and (graph.src < graph.dst).all()
    assert graph.dropped == 0


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("run",), [(f"{name}*+", f"{name}*-", KERNELS[name][1]) for name in "abcd"]),
        (("arrive",), [("n*+", "all", 0)]),
        (("transfer",), [("all", "n*-", 30)]),
        (("stream",), [("a*-", "c*+", 1), ("c*-", "d*+", 1)]),
        # Of the kernels that met an idle stream a and b came 5 later; what n needs more than four
        # times that has another cause, and c and d were queued.
        (("launch",), [(f"{name.upper()}*+", f"{name}*+", 5) for name in KERNELS]),
        (("call",), [*((f"{name.upper()}*+", f"{name.upper()}*-", 2) for name in KERNELS),
                     ("S*+", "S*-", 0)]),
        (("host_gap",), [(f"{tail}*-", f"{head}*+", 2) for tail, head in
                         ("AB", "BC", "CN", "ND", "DS")]),
        (("queue", "event", "handover", "capacity"), []),
    ],
)  # fmt: skip
def test_each_kind_of_edge(graph: Graph, kinds: tuple[str, ...], expected: Any) -> None:
    assert edges(graph, *kinds) == of_both(*expected)


def test_the_synchronising_call_waits_for_the_last_kernel_of_its_rank(graph: Graph) -> None:
    found = edges(graph, "sync")
    assert {("n0-", "S0-", 2_000), ("n1-", "S1-", 12_000)} <= found
    assert all(tail[1] == head[1] for tail, head, _ in found)


def test_a_step_follows_on_each_stream_and_each_thread(graph: Graph) -> None:
    names = labels(graph)
    columns = (c.tolist() for c in (graph.wrap_src, graph.wrap_dst, graph.wrap_weight))
    found = {(names[s], names[d]): w for s, d, w in zip(*columns, strict=True)}
    streams = {("d*-", "a*+"), ("b*-", "b*+"), ("n*-", "n*+")}
    expected = {tuple(end.replace("*", r) for end in pair) for pair in streams for r in "01"}
    threads = {("S0-", "A0+"): 98_000, ("S1-", "A1+"): 98_000}
    assert set(found) == expected | set(threads)
    assert {pair: found[pair] for pair in threads} == threads
    assert all(found[pair] == 1_000 for pair in expected)  # as close as kernels were seen


TIMES = st.integers(0, 4)


@given(
    st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=5),
    st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=5),
    st.lists(TIMES, max_size=3),
)
def test_nodes_of_one_moment_have_an_order(
    acts: list[tuple[int, int]], calls: list[tuple[int, int]], joins: list[int]
) -> None:
    """Activities, start before end, then what joins them, then calls: a call may end with what it
    waits for, so that edge leads upwards too."""
    spans = [(a, a + n) for a, n in acts], [(a, a + n) for a, n in calls]
    (start, end), (call_start, call_end) = (
        np.array(list(zip(*rows, strict=True)), np.int64) for rows in spans
    )
    edges = Edges(len(acts), len(calls), join_time=np.array(joins, np.int64))
    every, each = np.arange(len(acts)), np.arange(len(calls))
    edges.add("run", edges.start(every), edges.end(every), end - start, True)
    edges.add("call", edges.call_start(each), edges.call_end(each), call_end - call_start, True)
    edges.add("sync", edges.end(every[:1]), edges.call_end(each[:1]), every[:1], True)
    parts = StepEvents(
        1, None, 0, (0, 9), SimpleNamespace(start=start, end=end),  # type: ignore[arg-type]
        SimpleNamespace(start=call_start, end=call_end),  # type: ignore[arg-type]
    )  # fmt: skip
    graph = _number_nodes(parts, edges)
    nodes = [(t, 0, k, 0, ("start", k)) for k, t in enumerate(start.tolist())]
    nodes += [(t, 0, k, 1, ("end", k)) for k, t in enumerate(end.tolist())]
    nodes += [(t, 0, len(acts), k, ("join", k)) for k, t in enumerate(joins)]
    nodes += [(t, 1, k, 0, ("call_start", k)) for k, t in enumerate(call_start.tolist())]
    nodes += [(t, 1, k, 1, ("call_end", k)) for k, t in enumerate(call_end.tolist())]
    number = {node[-1]: k for k, node in enumerate(sorted(nodes))}
    for name, rows in (("start", every), ("end", every), ("call_start", each), ("call_end", each)):
        assert getattr(graph, name).tolist() == [number[name, k] for k in rows.tolist()], name
    assert graph.time.tolist() == [node[0] for node in sorted(nodes)]
    lost = int(end[0] > call_end[0])  # the call is over before
    assert graph.dropped == lost and (graph.src < graph.dst).all()
    assert len(graph.src) == len(acts) + len(calls) + 1 - lost
    assert graph.dst.tolist() == sorted(graph.dst.tolist())


def test_a_change_of_each_edge_counts_for_what_runs_there() -> None:
    acts = [
        Act("a", 10), comm("g", 20, "all_gather"), Act("m", 30, lane="copy", kind="memory"),
        Act("b", 10, waits=("g",)), comm("r", 5, "all_reduce", joined="r"),
        comm("r", 5, "all_reduce", rank=1, joined="r"),
    ]  # fmt: skip
    graph = small_model(acts).graph
    causes = {"compute": 0, "memory": 0, "communication": 0, "host": 0, "dependencies": 0}
    for edge, kind in enumerate(graph.kind.tolist()):
        cause = CATEGORIES[graph.categories[edge]]
        causes[cause] += 1
        if KINDS[kind] in ("run", "transfer"):
            (activity,) = np.flatnonzero(graph.end == graph.dst[edge]).tolist()
            names = {0: "compute", 1: "communication", 2: "memory"}
            assert cause == names[int(graph.activities.kind[activity])]
        else:
            is_host = KINDS[kind] in ("call", "host_gap", "handover", "launch")
            assert cause == ("host" if is_host else "dependencies")
    assert causes["compute"] == 2 and causes["memory"] == 1 and causes["communication"] == 3
    assert causes["host"] and causes["dependencies"]
