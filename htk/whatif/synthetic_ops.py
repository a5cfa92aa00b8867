"""Activities that the recorded step does not hold: recomputation, gathers, reductions.

They take no time in the graph that comes out and their full length in the model's weights, so that
the graph's own weights still are those of the untouched step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from htk.columns.coded_texts import CodedTexts
from htk.columns.order import ordered
from htk.columns.types import Ints, Mask
from htk.errors import UsageError
from htk.graph.build import Graph
from htk.graph.edges import KINDS
from htk.graph.nodes import Activities
from htk.graph.replay import NEVER, longest
from htk.whatif.step_model import StepFacts, StepModel

COMPUTE, COMM = 0, 1
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


def inserted(model: StepModel, works: Sequence[Work]) -> StepModel:
    """Return the model with more activities, numbered behind those that it has."""
    if not works:
        return model
    graph = model.graph
    many, first = len(works), len(graph.time)
    start = np.append(graph.start, first + 2 * np.arange(many))
    end = np.append(graph.end, first + 2 * np.arange(many) + 1)
    joins = sorted({w.joined for w in works if w.joined})
    more = _edges(graph, works, (start, end), {joined: k for k, joined in enumerate(joins)})
    src, dst, weight, kind = more
    runs = np.isin(kind, [KINDS.index("run"), KINDS.index("transfer")])
    # When the new nodes would have come had they taken no time.
    overs = graph.activities.end
    ready = seen = _ready(overs, works, 0)
    if not all(w.after for w in works):
        seen = _ready(overs, works, int(graph.time[0]))
    arrived = np.full(len(joins), seen.max(initial=0))
    grown = replace(
        graph,
        time=np.concatenate([graph.time, np.repeat(seen, 2), arrived]),
        src=np.append(graph.src, src),
        dst=np.append(graph.dst, dst),
        weight=np.append(graph.weight, np.where(runs, 0, weight)),
        kind=np.append(graph.kind, kind),
        observed=np.append(graph.observed, np.zeros(len(src), bool)),
        activities=_activities(graph.activities, works, ready),
        start=start,
        end=end,
    )
    numbered, edges = renumbered(grown, first)
    enlarged = replace(model, facts=_facts(model.facts, works))
    return enlarged.rewired(numbered, weight, edges, np.full(len(weight), -1))


def _edges(
    graph: Graph,
    works: Sequence[Work],
    nodes: tuple[Ints, Ints],
    joins: Mapping[tuple[int, ...], int],
) -> Ints:
    """Return the edges of new activities: tails, heads, weights and kinds.

    `nodes`: where each activity starts and ends; `joins`: the number of each new collective.
    """
    rows: list[tuple[int, int, int, int]] = []  # a node: its kind below, and its number among these
    run, transfer, arrive, event, launch = (
        KINDS.index(kind) for kind in ("run", "transfer", "arrive", "event", "launch")
    )
    for k, work in enumerate(works, len(graph.start)):  # some hundreds a micro-batch
        length, begins, ends = round(max(work.length, 0)), 4 * k + _STARTS, 4 * k + _ENDS
        if work.joined:
            join = 4 * joins[work.joined] + _JOINS
            rows.append((begins, join, 0, arrive))
            rows.append((join, ends, length, transfer))
        else:
            rows.append((begins, ends, length, run))
        rows += [(4 * w + _ENDS, begins, 0, event) for w in work.after]
        rows += [(ends, 4 * w + _STARTS, 0, event) for w in work.before]
        if work.call >= 0:
            rows.append((4 * work.call + _CALLS, begins, round(work.lag), launch))
    columns = np.array(rows, np.int64).T
    new = len(graph.time) + 2 * len(works) + np.arange(len(joins))
    of_kind = [(_STARTS, nodes[0]), (_ENDS, nodes[1]), (_JOINS, new), (_CALLS, graph.call_start)]
    for column in columns[:2]:
        kind, number = column % 4, column // 4
        for named, node in of_kind:
            chosen = kind == named
            column[chosen] = node[number[chosen]]
    return columns


_STARTS, _ENDS, _JOINS, _CALLS = range(4)  # kinds of nodes


def linked(
    model: StepModel,
    tails: Ints,
    heads: Ints,
    kind: str = "event",
    weights: Ints | None = None,
) -> StepModel:
    """Return the model with more dependencies, node to node; the untouched step knows none of them.
    `weights`: ns between the two; None: 0."""
    graph, many = model.graph, len(tails)
    grown = replace(
        graph,
        src=np.append(graph.src, tails),
        dst=np.append(graph.dst, heads),
        weight=np.append(graph.weight, np.full(many, NEVER)),
        kind=np.append(graph.kind, np.full(many, KINDS.index(kind))),
        observed=np.append(graph.observed, np.zeros(many, bool)),
    )
    numbered, edges = renumbered(grown, len(graph.time))
    more = np.zeros(many, np.int64) if weights is None else weights
    return model.rewired(numbered, more, edges, np.full(many, -1))


def parted(model: StepModel, chosen: NDArray[np.bool_]) -> StepModel:
    """Return the model whose chosen parts of collectives wait for no other rank: each is over
    with its own length."""
    graph = model.graph
    own = np.flatnonzero(graph.edges("transfer"))
    own = own[np.isin(graph.dst[own], graph.end[chosen])]
    heads = graph.dst[own]
    begins = np.full(len(graph.time), -1, np.int64)
    begins[graph.end] = graph.start
    dst = np.append(graph.dst, heads)
    order = ordered(dst)
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


def followed(model: StepModel, lasts: Ints, firsts: Ints) -> StepModel:
    """Return the model in which these activities wait for others of the step before."""
    graph, many = model.graph, len(lasts)
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


def _ready(end: Ints, works: Sequence[Work], first: int) -> Ints:
    """Return when all is over that each waits for; `first`: of one that waits for nothing."""
    many, ready = len(end), list[int]()
    awaited = np.array([w for work in works for w in work.after if w < many], np.int64)
    ends = iter(end[awaited].tolist())
    for work in works:  # some hundreds a micro-batch; later ones may wait for earlier ones
        over = [ready[w - many] if w >= many else next(ends) for w in work.after]
        ready.append(max(over, default=first))
    return np.array(ready, np.int64)


def _activities(acts: Activities, works: Sequence[Work], new: Ints) -> Activities:
    like = np.array([w.like for w in works], np.int64)
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
        kind=np.append(acts.kind, np.array([w.kind for w in works], np.int64)),
        call=np.append(acts.call, np.full(len(works), -1, np.int64)),
        before=np.append(acts.before, np.full(len(works), -1, np.int64)),
    )


def _facts(facts: StepFacts, works: Sequence[Work]) -> StepFacts:
    like = np.array([w.like for w in works], np.int64)
    is_comm = np.array([w.kind == COMM for w in works])
    op = np.array([w.op or "" for w in works])
    named = {text: ~is_comm & (op == text) for text in dict.fromkeys(op.tolist()) if text}
    return replace(
        facts,
        rows=np.append(facts.rows, facts.rows[like]),
        family=_behind(facts.family, like, {"communication": is_comm}),
        dims=_behind(facts.dims, like, {None: is_comm}),
        op=_behind(facts.op, like, {None: is_comm, **named}),
        collective=facts.collective.with_more(w.collective for w in works),
        in_bytes=np.append(facts.in_bytes, [w.in_bytes for w in works]),
        out_bytes=np.append(facts.out_bytes, [w.out_bytes for w in works]),
        group_size=np.append(facts.group_size, [w.group_size for w in works]),
        per_node=np.append(facts.per_node, [w.per_node for w in works]),
        blocks=np.append(facts.blocks, facts.blocks[like]),
        persistent=np.append(facts.persistent, facts.persistent[like]),
        single=np.append(facts.single, [w.kind == COMM and not w.joined for w in works]),
    )


def _behind(texts: CodedTexts, rows: Ints, other: Mapping[str | None, Mask]) -> CodedTexts:
    """Return the texts and those of some rows behind them, of which `other` says which have another
    text."""
    codes = texts.codes[rows]
    grown = texts.with_more(text for text, where in other.items() if where.any())
    code_of = {text: code for code, text in enumerate(grown.distinct)}
    for text, where in other.items():
        if where.any():
            codes[where] = code_of[text]
    return CodedTexts(np.append(texts.codes, codes), grown.distinct)


def renumbered(graph: Graph, numbered: int) -> tuple[Graph, Ints]:
    """Return the nodes numbered so that every edge leads upwards; and the new order of the edges.

    The first `numbered` nodes are so already.
    """
    level = np.arange(len(graph.time), dtype=np.int64) * _ROOM
    level[numbered:] = 0
    ones = np.ones(len(graph.src), np.int64)
    for _ in range(_PASSES):
        before = level.copy()
        longest(level, graph.src, graph.dst, ones)
        if (level == before).all():
            break
    else:
        raise UsageError("these edits wait for each other in a circle and cannot be combined")
    number = np.empty(len(level), np.int64)
    every = np.arange(len(level))
    stays = level == every * _ROOM
    stays[numbered:] = False
    order = _merged(level, stays)
    number[order] = every
    dst = number[graph.dst]
    edges = _merged(dst, stays[graph.dst] & _rising(graph.dst))
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


def _rising(values: Ints) -> Mask:
    """Return which values lie before the first one that is smaller than the one before it."""
    falls = np.flatnonzero(values[1:] < values[:-1])
    return np.arange(len(values)) <= (falls[0] if len(falls) else len(values))


def _merged(keys: Ints, in_order: Mask) -> Ints:
    """Return the rows in the order of their keys, equal ones as they stand, of which most, those
    `in_order`, are so already."""
    most, rest = np.flatnonzero(in_order), np.flatnonzero(~in_order)
    rest = rest[ordered(keys[rest])]
    there, wanted = keys[most], keys[rest]
    low, high = (np.searchsorted(there, wanted, side) for side in ("left", "right"))
    # Of equal keys among those in order, the ones that stand before.
    position = np.clip(np.searchsorted(most, rest), low, high)
    return np.insert(most, position, rest)
