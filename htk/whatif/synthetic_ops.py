"""Activities that the recorded step does not hold: recomputation, gathers, reductions.

They take no time in the graph that comes out and their full length in the model's weights, so that
the graph's own weights still are those of the untouched step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.coded_texts import CodedTexts
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask, fill_none
from htk.base.errors import UsageError
from htk.quantities.graph.build import Graph
from htk.quantities.graph.edges import KINDS
from htk.quantities.graph.nodes import Activities
from htk.quantities.graph.replay import NEVER, raise_to_longest
from htk.whatif.step_model import StepFacts, StepModel

COMPUTE = 0
COMM = 1
_OF_EDGES = ("src", "dst", "weight", "kind", "observed")
_ROOM = 1 << 20  # between the levels of neighbouring nodes
_PASSES = 2000  # each settles all that is in order; more mean a circle


@dataclass(frozen=True)
class Work:
    """A new activity. Others are named by number: those of the model, then new ones in turn."""

    like: int  # an activity of its rank, which it shares name and facts with
    length: float
    after: tuple[int, ...]  # it waits for the ends of these
    before: tuple[int, ...]  # these wait for its end
    kind: int = COMM
    collective: str | None = None
    in_bytes: int = -1
    out_bytes: int = -1
    group_size: int = -1
    per_node: int = 0
    joined: tuple[int, ...] = ()  # names the collective that it is a rank's part of; (): alone
    op: str | None = None  # the operator that launches it, where that is not the like one's
    call: int = -1  # it starts no sooner than this call does, and `lag` ns; -1: whenever
    lag: float = 0.0


@dataclass(frozen=True)
class _Columns:
    """Many such activities as columns; `after` and `before` have one row for each dependency."""

    like: Ints
    length: Floats
    kind: Ints
    collective: CodedTexts
    in_bytes: Ints
    out_bytes: Ints
    group_size: Ints
    per_node: Ints
    joined: Ints  # numbers of new collectives; -1: alone
    op: CodedTexts
    call: Ints
    lag: Floats
    after: tuple[Ints, Ints]  # places among the new ones, in order, and what each waits for
    before: tuple[Ints, Ints]

    @classmethod
    def from_works(cls, works: Sequence[Work]) -> "_Columns":
        number = {joined: k for k, joined in enumerate(sorted({w.joined for w in works} - {()}))}

        def build_column(name: str, kind: type = np.int64) -> Any:
            return np.array([getattr(work, name) for work in works], kind)

        def list_pairs(name: str) -> tuple[Ints, Ints]:
            rows = [(k, other) for k, work in enumerate(works) for other in getattr(work, name)]
            pairs = np.array(rows, np.int64).reshape(-1, 2)
            return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

        return cls(
            like=build_column("like"),
            length=build_column("length", np.float64),
            kind=build_column("kind"),
            collective=CodedTexts.from_texts(work.collective for work in works),
            in_bytes=build_column("in_bytes"),
            out_bytes=build_column("out_bytes"),
            group_size=build_column("group_size"),
            per_node=build_column("per_node"),
            joined=np.array([number.get(work.joined, -1) for work in works], np.int64),
            op=CodedTexts.from_texts(work.op for work in works),
            call=build_column("call"),
            lag=build_column("lag", np.float64),
            after=list_pairs("after"),
            before=list_pairs("before"),
        )


def insert_works(model: StepModel, works: Sequence[Work]) -> StepModel:
    """Return the model with more activities, numbered behind those that it has."""
    return _insert_columns(model, _Columns.from_works(works)) if works else model


def _insert_columns(model: StepModel, works: _Columns) -> StepModel:
    graph = model.graph
    many = len(works.like)
    first = len(graph.time)
    start = np.append(graph.start, first + 2 * np.arange(many))
    end = np.append(graph.end, first + 2 * np.arange(many) + 1)
    joins = int(works.joined.max()) + 1
    src, dst, weight, kind = _build_edges(graph, works, (start, end))
    runs = np.isin(kind, [KINDS.index("run"), KINDS.index("transfer")])
    # When the new nodes would have come had they taken no time.
    overs = graph.activities.end
    ready = seen = _find_ready_nodes(overs, works, 0)
    if not np.isin(np.arange(many), works.after[0]).all():
        seen = _find_ready_nodes(overs, works, int(graph.time[0]))
    arrived = np.full(joins, seen.max(initial=0))
    grown = replace(
        graph,
        time=np.concatenate([graph.time, np.repeat(seen, 2), arrived]),
        src=np.append(graph.src, src),
        dst=np.append(graph.dst, dst),
        weight=np.append(graph.weight, np.where(runs, 0, weight)),
        kind=np.append(graph.kind, kind),
        observed=np.append(graph.observed, np.zeros(len(src), bool)),
        activities=_append_activities(graph.activities, works, ready),
        start=start,
        end=end,
    )
    numbered, edges = renumber_nodes(grown, first)
    enlarged = replace(model, facts=_append_facts(model.facts, works))
    return enlarged.rewired(numbered, weight, edges, np.full(len(weight), -1))


def _build_edges(
    graph: Graph, works: _Columns, nodes: tuple[Ints, Ints]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the edges of new activities, one after the other: tails, heads, weights and kinds.

    `nodes`: where each activity starts and ends.
    """
    start, end = nodes
    every = np.arange(len(works.like))
    begins = start[len(graph.start) :]
    ends = end[len(graph.start) :]
    join = len(graph.time) + 2 * len(every) + works.joined
    length = np.rint(np.maximum(works.length, 0))
    alone = every[works.joined < 0]
    joined = every[works.joined >= 0]
    (waiting, awaited), (followed_by, following) = works.after, works.before
    called = every[works.call >= 0]
    calls = graph.call_start[works.call[called]]
    blocks = [  # the place of each, and its edge
        (alone, begins[alone], ends[alone], length[alone], "run"),
        (joined, begins[joined], join[joined], 0, "arrive"),
        (joined, join[joined], ends[joined], length[joined], "transfer"),
        (waiting, end[awaited], begins[waiting], 0, "event"),
        (followed_by, ends[followed_by], start[following], 0, "event"),
        (called, calls, begins[called], np.rint(works.lag[called]), "launch"),
    ]
    order = order_by(np.concatenate([block[0] for block in blocks]))

    def build_column(values: Iterable[Any]) -> Ints:
        sizes = [len(block[0]) for block in blocks]
        parts = [np.broadcast_to(v, n) for v, n in zip(values, sizes, strict=True)]
        return np.concatenate(parts).astype(np.int64)[order]

    kinds = build_column(KINDS.index(block[4]) for block in blocks)
    src = build_column(block[1] for block in blocks)
    dst = build_column(block[2] for block in blocks)
    weight = build_column(block[3] for block in blocks)
    return src, dst, weight, kinds


def link_nodes(
    model: StepModel,
    tails: Ints,
    heads: Ints,
    kind: str = "event",
    weights: Ints | None = None,
) -> StepModel:
    """Return the model with more dependencies, node to node; the untouched step knows none of them.
    `weights`: ns between the two; None: 0."""
    graph = model.graph
    many = len(tails)
    grown = replace(
        graph,
        src=np.append(graph.src, tails),
        dst=np.append(graph.dst, heads),
        weight=np.append(graph.weight, np.full(many, NEVER)),
        kind=np.append(graph.kind, np.full(many, KINDS.index(kind))),
        observed=np.append(graph.observed, np.zeros(many, bool)),
    )
    numbered, edges = renumber_nodes(grown, len(graph.time))
    more = np.zeros(many, np.int64) if weights is None else weights
    return model.rewired(numbered, more, edges, np.full(many, -1))


def forget_removed(model: StepModel) -> StepModel:
    """Return the model without the dependencies that edits removed, so that others may lead the
    other way round."""
    graph = model.graph
    kept = np.flatnonzero(model.weight > NEVER)
    columns = {name: getattr(graph, name)[kept] for name in _OF_EDGES}
    none = np.empty(0, np.int64)
    return model.rewired(replace(graph, **columns), none, kept, none)


def part_collectives(model: StepModel, chosen: NDArray[np.bool_]) -> StepModel:
    """Return the model whose chosen parts of collectives wait for no other rank: each is over
    with its own length."""
    graph = model.graph
    own = np.flatnonzero(graph.edges("transfer"))
    own = own[np.isin(graph.dst[own], graph.end[chosen])]
    heads = graph.dst[own]
    begins = fill_none(len(graph.time))
    begins[graph.end] = graph.start
    dst = np.append(graph.dst, heads)
    order = order_by(dst)
    grown = replace(
        graph,
        src=np.append(graph.src, begins[heads])[order],
        dst=dst[order],
        weight=np.append(graph.weight, np.zeros(len(own), np.int64))[order],
        kind=np.append(graph.kind, np.full(len(own), KINDS.index("run")))[order],
        observed=np.append(graph.observed, np.zeros(len(own), bool))[order],
    )
    alone = model.rewired(grown, model.weight[own], order, own)
    waited = np.isin(order, own)  # the transfers that hang on all ranks
    return replace(alone, weight=np.where(waited, NEVER, alone.weight))


def link_to_step_before(model: StepModel, lasts: Ints, firsts: Ints) -> StepModel:
    """Return the model in which these activities wait for others of the step before."""
    graph = model.graph
    many = len(lasts)
    tails = graph.end[lasts]
    grown = replace(
        graph,
        wrap_src=np.append(graph.wrap_src, tails),
        wrap_dst=np.append(graph.wrap_dst, graph.start[firsts]),
        wrap_weight=np.append(graph.wrap_weight, np.full(many, NEVER)),
        wrap_seen=np.append(graph.wrap_seen, graph.time[tails] - graph.period_ns),
    )
    weight = np.append(model.wrap_weight, np.zeros(many, np.int64))
    return replace(model, graph=grown, wrap_weight=weight)


def _find_ready_nodes(end: Ints, works: _Columns, first: int) -> Ints:
    """Return when all is over that each waits for; `first`: of one that waits for nothing. Later
    ones may wait for earlier ones."""
    waiting, awaited = works.after
    ready = np.full(len(works.like), first)
    ready[waiting] = NEVER
    over = np.append(end, ready)
    raise_to_longest(over, awaited, len(end) + waiting, np.zeros(len(waiting), np.int64))
    return over[len(end) :]


def _append_activities(acts: Activities, works: _Columns, new: Ints) -> Activities:
    like = works.like
    none = np.full(len(works.like), -1)
    lane = int(acts.lane.max()) + 1 + acts.rank[like]
    return replace(
        acts,
        row=np.append(acts.row, acts.row[like]),
        rank=np.append(acts.rank, acts.rank[like]),
        lane=np.append(acts.lane, lane),
        device=np.append(acts.device, acts.device[like]),
        start=np.append(acts.start, new),
        end=np.append(acts.end, new),
        name=np.append(acts.name, acts.name[like]),
        kind=np.append(acts.kind, works.kind),
        call=np.append(acts.call, none),
        before=np.append(acts.before, none),
    )


def _append_facts(facts: StepFacts, works: _Columns) -> StepFacts:
    like = works.like
    is_comm = works.kind == COMM
    named: dict[str | None, Mask] = {
        text: ~is_comm & (works.op.codes == code)
        for code, text in enumerate(works.op.distinct)
        if text
    }
    return replace(
        facts,
        rows=np.append(facts.rows, facts.rows[like]),
        family=_append_texts(facts.family, like, {"communication": is_comm}),
        dims=_append_texts(facts.dims, like, {None: is_comm}),
        op=_append_texts(facts.op, like, {None: is_comm, **named}),
        collective=facts.collective.followed_by(works.collective),
        group_kind=_append_texts(facts.group_kind, like, {None: is_comm}),
        in_bytes=np.append(facts.in_bytes, works.in_bytes),
        out_bytes=np.append(facts.out_bytes, works.out_bytes),
        group_size=np.append(facts.group_size, works.group_size),
        per_node=np.append(facts.per_node, works.per_node),
        blocks=np.append(facts.blocks, facts.blocks[like]),
        persistent=np.append(facts.persistent, facts.persistent[like]),
        single=np.append(facts.single, is_comm & (works.joined < 0)),
    )


def _append_texts(texts: CodedTexts, rows: Ints, other: Mapping[str | None, Mask]) -> CodedTexts:
    """Return the texts and those of some rows behind them, of which `other` says which have another
    text."""
    codes = texts.codes[rows]
    grown = texts.with_more(text for text, where in other.items() if where.any())
    code_of = {text: code for code, text in enumerate(grown.distinct)}
    for text, where in other.items():
        if where.any():
            codes[where] = code_of[text]
    return CodedTexts(np.append(texts.codes, codes), grown.distinct)


def renumber_nodes(graph: Graph, numbered: int) -> tuple[Graph, Ints]:
    """Return the nodes numbered so that every edge leads upwards; and the new order of the edges.

    The first `numbered` nodes are so already.
    """
    level = np.arange(len(graph.time), dtype=np.int64) * _ROOM
    level[numbered:] = 0
    ones = np.ones(len(graph.src), np.int64)
    for _ in range(_PASSES):
        before = level.copy()
        raise_to_longest(level, graph.src, graph.dst, ones)
        if (level == before).all():
            break
    else:
        raise UsageError("these edits wait for each other in a circle and cannot be combined")
    number = np.empty(len(level), np.int64)
    every = np.arange(len(level))
    stays = level == every * _ROOM
    stays[numbered:] = False
    order = _merge_order(level, stays)
    number[order] = every
    dst = number[graph.dst]
    edges = _merge_order(dst, stays[graph.dst] & _mark_rising(graph.dst))
    return (
        replace(
            graph,
            time=graph.time[order],
            src=number[graph.src[edges]],
            dst=dst[edges],
            weight=graph.weight[edges],
            kind=graph.kind[edges],
            observed=graph.observed[edges],
            wrap_src=number[graph.wrap_src],
            wrap_dst=number[graph.wrap_dst],
            start=number[graph.start],
            end=number[graph.end],
            call_start=number[graph.call_start],
            call_end=number[graph.call_end],
        ),
        edges,
    )


def _mark_rising(values: Ints) -> Mask:
    """Return which values lie before the first one that is smaller than the one before it."""
    falls = np.flatnonzero(values[1:] < values[:-1])
    return np.arange(len(values)) <= (falls[0] if len(falls) else len(values))


def _merge_order(keys: Ints, in_order: Mask) -> Ints:
    """Return the rows in the order of their keys, equal ones as they stand, of which most, those
    `in_order`, are so already."""
    most = np.flatnonzero(in_order)
    rest = np.flatnonzero(~in_order)
    rest = rest[order_by(keys[rest])]
    there = keys[most]
    wanted = keys[rest]
    low = np.searchsorted(there, wanted, "left")
    high = np.searchsorted(there, wanted, "right")
    # Of equal keys among those in order, the ones that stand before.
    position = np.clip(np.searchsorted(most, rest), low, high)
    return np.insert(most, position, rest)
