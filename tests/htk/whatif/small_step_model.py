"""Steps of a dozen nodes whose length can be worked out on paper.

Activities of a lane follow each other without a pause; what is said to wait, waits. Each rank has
one thread that launches them in the order given and needs no time for it. The next step begins when
all of this one is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from htk.base.columns.coded_texts import CodedTexts
from htk.base.schema import DERIVED, TABLES
from htk.physics.detected import detect_gpu
from htk.physics.hardware import Gpu
from htk.quantities.graph.build import Graph
from htk.quantities.graph.edges import Edges
from htk.quantities.graph.nodes import Activities, LaunchCalls
from htk.quantities.graph.replay import replay_graph as replayed_graph
from htk.whatif.step_model import StepFacts, StepModel
from htk.whatif.synthetic_ops import renumber_nodes

KINDS = ("compute", "comm", "memory")


@dataclass(frozen=True)
class Act:
    name: str
    length: int
    lane: str = "compute"
    rank: int = 0
    waits: tuple[str, ...] = ()  # names of activities of its rank
    kind: str = "compute"
    family: str = "gemm"
    op: str | None = None
    dims: str | None = None
    types: str | None = None
    module: str | None = None
    backward: bool = False
    recomputed: bool = False
    gradient: bool = False  # of a parameter
    blocks: float = float("nan")
    persistent: bool = False
    collective: str | None = None
    in_bytes: int = -1
    out_bytes: int = -1
    group: int = -1
    per_node: int = 0
    group_kind: str | None = None
    joined: str | None = None  # the collective that it is a rank's part of


@dataclass(frozen=True)
class KnownFacts(StepFacts):
    """Facts that are given, where those of a trace are read from tables."""

    acts: Sequence[Act] = ()
    named: str | None = None

    @property
    def op_row(self) -> np.ndarray:  # type: ignore[override]
        return np.full(len(self.rows), -1)

    @property
    def of_gradients(self) -> np.ndarray:  # type: ignore[override]
        return np.array([self.acts[r].gradient for r in self.rows.tolist()], bool)

    @property
    def backward(self) -> np.ndarray:  # type: ignore[override]
        return np.array([self.acts[r].backward for r in self.rows.tolist()], bool)

    @property
    def recomputed(self) -> np.ndarray:  # type: ignore[override]
        return np.array([self.acts[r].recomputed for r in self.rows.tolist()], bool)

    @property
    def module(self) -> CodedTexts:  # type: ignore[override]
        return CodedTexts.from_texts(self.acts[r].module for r in self.rows.tolist())

    @property
    def grid(self) -> CodedTexts:
        return CodedTexts.from_texts("1,1,1" for _ in self.rows)

    @property
    def types(self) -> CodedTexts:  # type: ignore[override]
        return CodedTexts.from_texts(self.acts[r].types for r in self.rows.tolist())

    @property
    def device_name(self) -> str | None:  # type: ignore[override]
        return self.named

    @property
    def device(self) -> Gpu | None:  # type: ignore[override]
        return detect_gpu(self.named)


def comm(name: str, length: int, collective: str, **facts: Any) -> Act:
    facts.setdefault("lane", "comm")
    return Act(name, length, kind="comm", family="communication", collective=collective, **facts)


def period(model: StepModel) -> int:
    """How long a step of the model takes."""
    return replayed_graph(model.graph, model.weight, model.wrap_weight).period_ns


def length(model: StepModel, name: str) -> int:
    acts = model.graph.activities
    indices = [k for k, code in enumerate(acts.name.tolist()) if acts.names[code] == name]
    return int(model.lengths()[indices[0]])


def small_model(
    acts: Sequence[Act], gpus_per_node: int = 8, device_name: str | None = None, **facts: Any
) -> StepModel:
    lanes = list(dict.fromkeys((a.rank, a.lane) for a in acts))
    in_order = list(acts)
    acts = sorted(acts, key=lambda a: lanes.index((a.rank, a.lane)))
    start, end = _timed(acts)
    names = list(dict.fromkeys(a.name for a in acts))
    lane = _ints(lanes.index((a.rank, a.lane)) for a in acts)
    rank = _ints(a.rank for a in acts)
    many = len(acts)
    activities = Activities(
        row=np.arange(many),
        rank=rank,
        lane=lane,
        device=rank,
        start=start,
        end=end,
        name=_ints(names.index(a.name) for a in acts),
        names=names,
        kind=_ints(KINDS.index(a.kind) for a in acts),
        call=np.empty(0, np.int64),
        before=np.full(many, -1),
    )
    calls, of = _calls(acts, [in_order.index(a) for a in acts])
    activities = replace(activities, call=of)
    graph = _graph(acts, activities, calls, int(end.max()))
    tables = {name: schema.empty_table() for name, schema in {**TABLES, **DERIVED}.items()}
    known_facts = KnownFacts(
        tables=tables,
        rows=activities.row,
        family=CodedTexts.from_texts(a.family for a in acts),
        dims=CodedTexts.from_texts(a.dims for a in acts),
        op=CodedTexts.from_texts(a.op for a in acts),
        collective=CodedTexts.from_texts(a.collective for a in acts),
        group_kind=CodedTexts.from_texts(a.group_kind for a in acts),
        in_bytes=_ints(a.in_bytes for a in acts),
        out_bytes=_ints(a.out_bytes for a in acts),
        group_size=_ints(a.group for a in acts),
        per_node=_ints(a.per_node for a in acts),
        blocks=np.array([a.blocks for a in acts]),
        persistent=np.array([a.persistent for a in acts]),
        single=np.array([a.kind == "comm" and a.joined is None for a in acts]),
        gpus_per_node=gpus_per_node,
        scale_up_gbps=None,
        acts=acts,
        named=device_name,
    )
    return StepModel(graph, replace(known_facts, **facts), graph.weight, graph.wrap_weight)


def _timed(acts: Sequence[Act]) -> tuple[np.ndarray, np.ndarray]:
    """Earliest times, by going over them until nothing moves."""
    start, finish = [0] * len(acts), [0] * len(acts)
    indices = {(a.rank, a.name): k for k, a in enumerate(acts)}
    while True:
        before = list(finish)
        for k, a in enumerate(acts):
            earlier = [0] + [finish[indices[a.rank, w]] for w in a.waits]
            if k and (acts[k - 1].rank, acts[k - 1].lane) == (a.rank, a.lane):
                earlier.append(finish[k - 1])
            start[k] = max(earlier)
        for k, a in enumerate(acts):
            peers = [j for j, b in enumerate(acts) if a.joined and b.joined == a.joined] or [k]
            finish[k] = max(start[j] for j in peers) + a.length
        if finish == before:
            return np.array(start), np.array(finish)


def _calls(acts: Sequence[Act], order: list[int]) -> tuple[LaunchCalls, np.ndarray]:
    rank = _ints(a.rank for a in acts)
    rows = np.lexsort((order, rank))
    of = np.empty(len(acts), np.int64)
    of[rows] = np.arange(len(acts))
    zero, none = np.zeros(len(acts), np.int64), np.full(len(acts), -1)
    calls = LaunchCalls(
        np.arange(len(acts)), rank[rows], rank[rows], zero, zero, zero, ["cudaLaunch"], none, none
    )
    return calls, of


def _graph(acts: Sequence[Act], activities: Activities, calls: LaunchCalls, end_ns: int) -> Graph:
    many = len(acts)
    edges = Edges(many, many)
    indices = {(a.rank, a.name): k for k, a in enumerate(acts)}
    joins = sorted({a.joined for a in acts if a.joined})
    edges.join_time = np.array(
        [max(activities.start[k] for k, a in enumerate(acts) if a.joined == j) for j in joins],
        np.int64,
    )
    for k, a in enumerate(acts):
        index = np.array([k])
        if a.joined:
            node = edges.join(np.array([joins.index(a.joined)]))
            edges.add("arrive", edges.start(index), node, np.array([0]), True)
            edges.add("transfer", node, edges.end(index), np.array([a.length]), True)
        else:
            edges.add("run", edges.start(index), edges.end(index), np.array([a.length]), True)
        for waited in a.waits:
            other = np.array([indices[a.rank, waited]])
            edges.add("event", edges.end(other), edges.start(index), np.array([0]), True)
        if k and activities.lane[k - 1] == activities.lane[k]:
            edges.add("stream", edges.end(index - 1), edges.start(index), np.array([0]), True)
        call = activities.call[index]
        edges.add("launch", edges.call_start(call), edges.start(index), np.array([0]), True)
        edges.add("call", edges.call_start(call), edges.call_end(call), np.array([0]), True)
        if call[0] and calls.lane[call[0] - 1] == calls.lane[call[0]]:
            edges.add(
                "host_gap", edges.call_end(call - 1), edges.call_start(call), np.array([0]), True
            )
    firsts = np.flatnonzero(np.append(True, calls.lane[1:] != calls.lane[:-1]))
    for first in firsts.tolist():  # a rank each
        every = np.arange(many)
        heads = edges.call_start(np.full(many, first))
        edges.wrap(edges.end(every), heads, np.zeros(many, np.int64), activities.end - end_ns)
    joined = edges.join_time
    stand = np.concatenate([activities.start, activities.end, calls.start, calls.end, joined])
    every = np.arange(many)
    raw = Graph(
        step=1,
        origin_ns=0,
        window=(0, end_ns),
        time=stand,
        src=edges.src,
        dst=edges.dst,
        weight=edges.weight,
        kind=edges.kind,
        observed=edges.observed,
        wrap_src=edges.wrap_src,
        wrap_dst=edges.wrap_dst,
        wrap_weight=edges.wrap_weight,
        wrap_seen=edges.wrap_seen,
        activities=activities,
        calls=calls,
        start=edges.start(every),
        end=edges.end(every),
        call_start=edges.call_start(every),
        call_end=edges.call_end(every),
        dropped=0,
    )
    return renumber_nodes(raw, 0)[0]


def _ints(values: Any) -> np.ndarray:
    return np.array(list(values), np.int64)
