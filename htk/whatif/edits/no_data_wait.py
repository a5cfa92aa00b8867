"""No thread waits for data: loading takes no time on the threads that launch."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, numbers, truths
from htk.columns.intervals import Spans, covered, union
from htk.columns.nesting import Threads
from htk.columns.types import Ints, Mask
from htk.derived.clocks import corrections
from htk.derived.host_states import LOADING, span_state
from htk.errors import UsageError
from htk.whatif.edit_arguments import switched_on
from htk.whatif.step_model import StepModel

NAME = "no_data_wait"
HELP = "No thread that launches waits for its data loader: on."


def apply(scene: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    loading = _loading(scene)
    graph = scene.graph
    lane = np.full(len(graph.time), -1, np.int64)
    lane[graph.call_start] = lane[graph.call_end] = graph.calls.lane
    gaps = np.flatnonzero(graph.edges("host_gap"))
    tail, head = graph.src[gaps], graph.dst[gaps]
    lost = _within(loading, lane[head], graph.time[tail], graph.time[head])
    weight, wraps = scene.weight.copy(), scene.wrap_weight.copy()
    weight[gaps] -= np.minimum(lost, np.maximum(weight[gaps], 0))
    between = np.flatnonzero(np.isin(graph.wrap_dst, graph.call_start))
    head = graph.wrap_dst[between]
    lost = _within(loading, lane[head], graph.wrap_seen[between], graph.time[head])
    wraps[between] -= np.minimum(lost, np.maximum(wraps[between], 0))
    gone = (scene.weight - weight).sum() + (scene.wrap_weight - wraps).sum()
    if not gone:
        raise UsageError(f"{NAME}: no loading of data is seen on a thread that launches")
    return (
        replace(scene, weight=weight, wrap_weight=wraps)
        .with_uncertainty("host", 0.1)
        .with_assumption(
            f"loading data takes no time of a rank's step, {gone / len(graph.ranks) / 1e6:.2f} ms "
            "now; what copies it to the GPU still does"
        )
    )


def _within(loading: dict[int, Spans], lane: Ints, start: Ints, end: Ints) -> Ints:
    """Return how much of each interval its thread loads data."""
    lost = np.zeros(len(lane), np.int64)
    for thread, spans in loading.items():  # a few threads
        own = lane == thread
        lost[own] = covered(spans, end[own]) - covered(spans, start[own])
    return lost


def _loading(scene: StepModel) -> dict[int, Spans]:
    """Return when each thread that launches loads data, in the graph's time, by its lane."""
    tables, calls = scene.facts.tables, scene.graph.calls
    if not tables["launches"].num_rows:
        return {}
    threads = Threads()
    launching = threads.of(tables["launches"])[calls.row]
    by_lane: dict[int, list[tuple[Ints, Ints]]] = {int(n): [] for n in np.unique(calls.lane)}
    for table in (tables[name] for name in ("cpu_ops", "annotations", "python_calls")):
        rows = np.flatnonzero(_loads(table))
        thread = threads.of(table)[rows].astype(np.int64)
        rank = numbers(table["rank"], -1)[rows].astype(np.int64)
        start = numbers(table["start_ns"])[rows]
        shift = corrections(tables["rank_clocks"], rank, start) - scene.graph.origin_ns
        end = numbers(table["end_ns"])[rows] + shift
        start = start + shift
        for lane, spans in by_lane.items():
            first = int(np.flatnonzero(calls.lane == lane)[0])
            own = (thread == launching[first]) & (rank == calls.rank[first])
            spans.append((start[own], end[own]))
    return {lane: union(*_joined(spans)) for lane, spans in by_lane.items()}


def _joined(spans: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([s for s, _ in spans]), np.concatenate([e for _, e in spans])


def _loads(table: pa.Table) -> Mask:
    codes, names = codes_of(table["name"])
    loads = np.array([*(span_state(n) == LOADING for n in names.to_pylist()), False], bool)[codes]
    return loads & ~truths(table["on_gpu"]) if "on_gpu" in table.column_names else loads
