"""Where the critical path of a step runs: its pieces, on the rows of the tables they lie in."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    decode_texts,
    number_or_null,
    read_numbers,
)
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.mappings import Facts, NamedTables
from htk.base.schema import BOOL, INT32, INT64, TEXT, table
from htk.quantities.derived.clocks import recorded_times
from htk.quantities.graph.build import Graph
from htk.quantities.graph.edges import KINDS

WHAT = {
    "run": "compute",
    "arrive": "communication",
    "transfer": "communication",
    "call": "host: launch and runtime calls",
    "host_gap": "host: between calls",
    "handover": "host: from thread to thread",
    "launch": "launch latency",
    "stream": "gap between kernels",
    "event": "stream waits for stream",
    "sync": "host waits for GPU",
    "queue": "full queue",
    "capacity": "no room on the GPU",
}
RUNS = ("compute", "communication", "memory")  # what an activity's own length is, by its kind
_WHATS = (*RUNS, *(what for what in WHAT.values() if what not in RUNS))
_INSIDE = ("run", "arrive", "transfer", "call")

PATH = table(
    rank=(INT32, "Global rank of the event."),
    cycle=(INT32, "Profiling cycle."),
    table=(TEXT, "Table of the event: kernels or launches."),
    row=(INT64, "Its row there."),
    event=(INT64, "Row of the event in its rank's trace."),
    from_table=(TEXT, "Table of the event that the path comes from; null: it begins here."),
    from_row=(INT64, "Its row there."),
    start_ns=(INT64, "When the piece began, absolute, on the clock of its rank."),
    end_ns=(INT64, "When it ended."),
    path_ns=(INT64, "What it holds of the path."),
    kind=(TEXT, "What it is: compute, communication, launch latency, host: between calls, …"),
    inside=(BOOL, "It lies within the event; else between the event it comes from and it."),
    observed=(BOOL, "The dependency was recorded, not inferred."),
)
_TABLES = ("kernels", "launches")


def list_pieces(tables: NamedTables, graph: Graph, path: Ints) -> pa.Table:
    """Return the pieces of a critical path, first to last, from its step's start on; times are as
    recorded, not as replayed."""
    low = graph.window[0]
    path = path[graph.time[graph.dst[path]] > low]
    pieces = PathPieces.from_path(graph, path)
    end = graph.time[graph.dst[path]]
    start = np.maximum(graph.time[graph.src[path]], low)
    length = np.maximum(np.minimum(graph.weight[path], end - low), 0)
    rank = pieces.rank.astype(np.int64)
    start = start + graph.origin_ns
    end = np.maximum(end + graph.origin_ns, start)
    clocks = tables["rank_clocks"]
    cycle = of_tables(tables, pieces, "cycle")
    event = of_tables(tables, pieces, "event")
    before = np.append(-1, pieces.row[:-1])[: len(path)]
    columns = [
        number_or_null(rank, INT32),
        build_numbers(cycle, INT32),
        decode_texts(pieces.of_call.astype(np.int64), pa.array(_TABLES)),
        build_numbers(pieces.row, INT64),
        number_or_null(event, INT64),
        decode_texts(_came_from(pieces), pa.array(_TABLES)),
        number_or_null(before, INT64),
        build_numbers(recorded_times(clocks, rank, start), INT64),
        build_numbers(recorded_times(clocks, rank, end), INT64),
        build_numbers(length, INT64),
        decode_texts(pieces.what, pa.array(_WHATS)),
        build_booleans(pieces.inside),
        build_booleans(graph.observed[path]),
    ]
    return pa.table(columns, schema=PATH)


@dataclass(frozen=True)
class PathEdges:
    """The edges of a path, first to last."""

    weight: Ints
    kind: Ints  # into KINDS
    observed: Mask
    begin: Ints  # as replayed
    end: Ints
    unexplained: Ints  # as in Graph; empty: no such delays were kept

    @classmethod
    def from_path(cls, graph: Graph, path: Ints, time: Ints) -> "PathEdges":
        return cls(
            graph.weight[path],
            graph.kind[path],
            graph.observed[path],
            time[graph.src[path]],
            time[graph.dst[path]],
            graph.unexplained[path] if len(graph.unexplained) else graph.unexplained,
        )

    def within(self, low: int) -> Ints:
        """Return how long each lasts, without what lies before a time."""
        return np.maximum(np.minimum(self.weight, self.end - low), 0)


@dataclass(frozen=True)
class PathEvents:
    """The event of each edge of a path, as answers name it."""

    what: Ints  # into _WHATS
    name: NDArray[np.str_]
    rank: Ints
    event: Ints  # row in the rank's trace; -1: none

    @classmethod
    def from_path(cls, graph: Graph, path: Ints, events: tuple[Ints, Ints]) -> "PathEvents":
        """Return those of a graph; `events`: see `event_numbers`."""
        pieces = PathPieces.from_path(graph, path)
        of_kernels, of_launches = (np.append(column, -1) for column in events)
        row = np.where(pieces.of_call, -1, pieces.row), np.where(pieces.of_call, pieces.row, -1)
        event = np.where(pieces.of_call, of_launches[row[1]], of_kernels[row[0]])
        return cls(pieces.what, pieces.names(graph), pieces.rank, event)

    def whats(self) -> NDArray[np.str_]:
        return np.array(_WHATS, np.str_)[self.what]


@dataclass(frozen=True)
class PathPieces:
    """The event that each piece of a path leads to, or lies in."""

    of_call: Mask  # an event of `launches`, else of `kernels`
    position: Ints  # in the graph's calls or activities
    row: Ints  # in the table
    rank: Ints
    what: Ints  # into _WHATS
    inside: Mask

    @classmethod
    def from_path(cls, graph: Graph, path: Ints) -> "PathPieces":
        acts = graph.activities
        calls = graph.calls
        of_act, of_call = np.full((2, len(graph.time)), -1, np.int64)
        of_act[graph.start] = of_act[graph.end] = np.arange(len(acts.row))
        of_call[graph.call_start] = of_call[graph.call_end] = np.arange(len(calls.row))
        head = graph.dst[path]
        # Where the ranks of a collective meet there is no event: then it is the one that arrives.
        meets = (of_act[head] < 0) & (of_call[head] < 0)
        node = np.where(meets, graph.src[path], head)
        act = of_act[node]
        call = of_call[node]
        is_call = act < 0
        runs = take_or(acts.kind, act, 0)
        what = np.array([_WHATS.index(WHAT[k]) for k in KINDS], np.int64)[graph.kind[path]]
        what = np.where(graph.kind[path] == KINDS.index("run"), runs, what)
        return cls(
            is_call,
            np.where(is_call, call, act),
            np.where(is_call, take_or(calls.row, call), take_or(acts.row, act)),
            np.where(is_call, take_or(calls.rank, call), take_or(acts.rank, act)),
            what,
            np.isin(graph.kind[path], [KINDS.index(k) for k in _INSIDE]),
        )

    def names(self, graph: Graph) -> NDArray[np.str_]:
        acts = graph.activities
        calls = graph.calls
        names = np.array([*acts.names, *calls.names, ""], np.str_)
        act = np.append(acts.name, -1)
        call = np.append(calls.name, -1)
        other = call[np.where(self.of_call, self.position, -1)] + len(acts.names)
        return names[np.where(self.of_call, other, act[np.where(self.of_call, -1, self.position)])]


@dataclass(frozen=True)
class StepPath:
    """The critical path of a step, with what is said of the step."""

    edges: PathEdges
    events: PathEvents
    facts: Facts  # of the coverage
    low: int  # when the step begins, in times of the edges
    origin_ns: int  # what these count from
    lead: str  # what lies between the step's beginning and the path's


def _came_from(pieces: PathPieces) -> Ints:
    before = pieces.of_call.astype(np.int64)
    return np.append(-1, before[:-1])[: len(before)]


def event_numbers(tables: NamedTables) -> tuple[Ints, Ints]:
    """Return the row in its rank's trace of each row of `kernels`, and of `launches`."""
    return read_numbers(tables["kernels"]["event"], NONE), read_numbers(
        tables["launches"]["event"], NONE
    )


def of_tables(tables: NamedTables, pieces: PathPieces, column: str) -> Ints:
    """Return a column of the tables, for the event of each piece."""
    values = np.empty(len(pieces.row), np.int64)
    for from_table, name in ((pieces.of_call, "launches"), (~pieces.of_call, "kernels")):
        values[from_table] = read_numbers(tables[name][column], NONE)[pieces.row[from_table]]
    return values
