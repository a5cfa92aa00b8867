"""Time in which a thread that launches is stalled instead: it loads data, allocates, collects."""

from collections.abc import Collection

import numpy as np

from htk.base.columns.arrow import codes_of, read_booleans, read_keys, read_numbers
from htk.base.columns.intervals import Spans, measure_covered, merge_spans
from htk.base.columns.nesting import Threads
from htk.base.columns.types import Ints, Mask, fill_none
from htk.base.mappings import NamedTables
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.derived.host_states import LOADING, call_states, overhead_state, span_state
from htk.whatif.step_model import StepModel


def loading_ns(model: StepModel) -> tuple[Ints, Ints]:
    """Return how much of each edge, and of each edge into the next step, is loading of data."""
    return stalled_ns(model, (LOADING,))


def stalled_ns(model: StepModel, states: Collection[int]) -> tuple[Ints, Ints]:
    """Return how much of each edge, and of each edge into the next step, its thread spends in these
    states of the host (`derived.host_states`)."""
    graph = model.graph
    names = sorted(states)
    stalled = model.once(f"threads in {names}", lambda: _find_stalled(model, frozenset(states)))
    of_edge = np.zeros_like(model.weight)
    of_wrap = np.zeros_like(model.wrap_weight)
    lane = fill_none(len(graph.time))
    lane[graph.call_start] = lane[graph.call_end] = graph.calls.lane
    gaps = np.flatnonzero(graph.edges("host_gap", "call", "handover"))
    tail = graph.src[gaps]
    head = graph.dst[gaps]
    times = graph.time[tail], graph.time[head]
    # One thread that hands over to another may be stalled itself before it does.
    within = np.maximum(*(_measure_within(stalled, lane[node], *times) for node in (tail, head)))
    of_edge[gaps] = np.minimum(within, np.maximum(model.weight[gaps], 0))
    between = np.flatnonzero(np.isin(graph.wrap_dst, graph.call_start))
    head = graph.wrap_dst[between]
    within = _measure_within(stalled, lane[head], graph.wrap_seen[between], graph.time[head])
    of_wrap[between] = np.minimum(within, np.maximum(model.wrap_weight[between], 0))
    return of_edge, of_wrap


def _measure_within(stalled: dict[int, Spans], lane: Ints, start: Ints, end: Ints) -> Ints:
    """Return how much of each interval its thread is stalled."""
    lost = np.zeros(len(lane), np.int64)
    for thread, spans in stalled.items():  # a few threads
        own = np.flatnonzero(lane == thread)
        lost[own] = measure_covered(spans, end[own]) - measure_covered(spans, start[own])
    return lost


def _find_stalled(model: StepModel, states: frozenset[int]) -> dict[int, Spans]:
    """Return when threads that launch are in these states, in the graph's time, by lane."""
    tables = model.facts.tables
    calls = model.graph.calls
    if not tables["launches"].num_rows:
        return {}
    threads = Threads()
    launching = threads.number_threads(tables["launches"])[calls.row]
    by_lane: dict[int, list[tuple[Ints, Ints]]] = {int(n): [] for n in np.unique(calls.lane)}
    for name in ("launches", "cpu_ops", "annotations", "python_calls", "overheads"):
        table = tables[name]
        rows = np.flatnonzero(_in_states(tables, name, states))
        thread = threads.number_threads(table)[rows].astype(np.int64)
        rank = read_keys(table["rank"])[rows]
        start = read_numbers(table["start_ns"])[rows]
        shift = compute_corrections(tables["rank_clocks"], rank, start) - model.graph.origin_ns
        end = read_numbers(table["end_ns"])[rows] + shift
        start = start + shift
        for lane, spans in by_lane.items():
            first = int(np.flatnonzero(calls.lane == lane)[0])
            own = (thread == launching[first]) | (name == "overheads")  # those hold all threads up
            own &= rank == calls.rank[first]
            spans.append((start[own], end[own]))
    joined = {lane: merge_spans(*_join_spans(spans)) for lane, spans in by_lane.items()}
    return {lane: spans for lane, spans in joined.items() if len(spans.start)}


def _join_spans(spans: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([s for s, _ in spans]), np.concatenate([e for _, e in spans])


def _in_states(tables: NamedTables, name: str, states: frozenset[int]) -> Mask:
    """Return which rows of a table say that their thread is in one of these states."""
    table = tables[name]
    if name == "launches":
        of_call = call_states(table, tables["kernels"], tables["kernel_links"])
        return np.isin(of_call, list(states))
    codes, names = codes_of(table["name"])
    state_of = overhead_state if name == "overheads" else span_state
    chosen = np.array([*(state_of(n) in states for n in names.to_pylist()), False], bool)[codes]
    return chosen & ~read_booleans(table["on_gpu"]) if "on_gpu" in table.column_names else chosen
