"""Transfers that compute waits for, and the step in which both are cut into pieces and take turns.

A transfer of activations waits for the compute before it, and the compute after it for the
transfer. Cut into equal pieces, the transfer of one runs beside the compute of another. Of two
stages in turn, k pieces of a and b take max(a + k b, k a + b): so much say the dependencies that
take the place of the recorded ones, from the start of what is cut to its first piece's end, and
from its end to the last piece of what follows.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.quantities.graph.replay import NEVER
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import link_nodes


@dataclass(frozen=True)
class BlockingTransfer:
    """A rank's part of a transfer, with compute right before and after it and none beside."""

    activity: int
    before: tuple[int, ...]  # compute of its rank that is cut with it, in order
    after: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """Into how many pieces, and what they take together."""

    count: int
    lengths: Floats  # of each activity, all pieces of it
    piece: Floats  # of each transfer, one of them


def list_blocking(
    model: StepModel, transfers: Mask, cut: Mask, *, whole_runs: bool
) -> list[BlockingTransfer]:
    """Return the transfers that no compute of their rank runs beside.

    `cut`: compute that may be cut. `whole_runs`: all of it from one such transfer to the next, else
    the activity right before and the one right after.
    """
    acts = model.graph.activities
    blocked: list[BlockingTransfer] = []
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        lane = lane[model.is_compute[lane]]
        own = np.flatnonzero(transfers & (acts.rank == rank))
        own = own[order_by(acts.start[own])]
        follows = np.searchsorted(acts.end[lane], acts.start[own], side="right")
        later = np.append(acts.start[lane], np.iinfo(np.int64).max)[follows]
        is_alone = (later >= acts.end[own]) & (follows > 0) & (follows < len(lane))
        own = own[is_alone]
        follows = follows[is_alone]
        ends = np.unique([0, *follows.tolist(), len(lane)])
        for transfer, position in zip(own.tolist(), follows.tolist(), strict=True):  # some hundreds
            first = int(ends[np.searchsorted(ends, position) - 1]) if whole_runs else position - 1
            last = int(ends[np.searchsorted(ends, position) + 1]) if whole_runs else position + 1
            before = _cut_run(lane[first:position][::-1], cut)[::-1]
            blocked.append(BlockingTransfer(transfer, before, _cut_run(lane[position:last], cut)))
    return _of_all_ranks(model, blocked, transfers)


def _cut_run(run: Ints, cut: Mask) -> tuple[int, ...]:
    """Return the first of a run of activities that may all be cut."""
    uncut = np.flatnonzero(~cut[run])
    return tuple(run[: uncut[0] if len(uncut) else len(run)].tolist())


def _of_all_ranks(
    model: StepModel, blocked: list[BlockingTransfer], transfers: Mask
) -> list[BlockingTransfer]:
    """Return those that block each recorded rank that takes part, and have something to cut."""
    begins = _find_begins(model)
    parts = np.bincount(begins[np.flatnonzero(transfers)], minlength=len(model.graph.time))
    blocking_parts = np.bincount(
        begins[[b.activity for b in blocked]], minlength=len(model.graph.time)
    )
    return [
        b
        for b in blocked
        if parts[begins[b.activity]] == blocking_parts[begins[b.activity]] and (b.before or b.after)
    ]


def _find_begins(model: StepModel) -> Ints:
    """Return the node from which each activity runs: its start, or the last rank's arrival."""
    return np.where(model.run_edge >= 0, model.graph.src[model.run_edge], model.graph.start)


def cut_into(model: StepModel, blocked: Sequence[BlockingTransfer], pieces: Pieces) -> StepModel:
    """Return the step with these transfers, and the compute beside them, in pieces that overlap."""
    longer = np.zeros(len(pieces.lengths), bool)
    for transfer in blocked:
        longer[[transfer.activity, *transfer.before, *transfer.after]] = True
    changed = model.with_lengths(longer, pieces.lengths)
    changed = changed.without(_recorded_order(model, blocked))
    tails, heads, weights = _link_pieces(model, blocked, pieces)
    return _on_own_streams(link_nodes(changed, tails, heads, weights=weights), blocked)


def _on_own_streams(model: StepModel, blocked: Sequence[BlockingTransfer]) -> StepModel:
    """Transfers that stood on the stream of the compute get one of their own, rank by rank."""
    acts = model.graph.activities
    lane = acts.lane.copy()
    more = int(acts.lane.max()) + 1
    for b in blocked:
        if acts.lane[b.activity] in acts.lane[[*b.before, *b.after]]:
            lane[b.activity] = more + acts.rank[b.activity]
    return replace(model, graph=replace(model.graph, activities=replace(acts, lane=lane)))


def _recorded_order(model: StepModel, blocked: Sequence[BlockingTransfer]) -> Mask:
    """Dependencies of whole transfers on whole compute, and the other way round."""
    graph = model.graph
    ordering = graph.edges("event", "stream", "capacity")
    nodes = len(graph.time)
    pairs = {
        (int(graph.end[a]), int(graph.start[b.activity])) for b in blocked for a in b.before
    } | {(int(graph.end[b.activity]), int(graph.start[a])) for b in blocked for a in b.after}
    removed = np.zeros(len(graph.src), bool)
    is_tail = np.zeros(nodes, bool)
    is_head = np.zeros(nodes, bool)
    is_tail[[tail for tail, _ in pairs]] = True
    is_head[[head for _, head in pairs]] = True
    near = np.flatnonzero(ordering & is_tail[graph.src] & is_head[graph.dst])
    for edge in near.tolist():  # a few for each transfer
        removed[edge] = (int(graph.src[edge]), int(graph.dst[edge])) in pairs
    return removed


def _link_pieces(
    model: StepModel, blocked: Sequence[BlockingTransfer], pieces: Pieces
) -> tuple[Ints, Ints, Ints]:
    """Dependencies of pieces: from node, to node, ns between."""
    graph, begins = model.graph, _find_begins(model)
    rows: list[tuple[int, int, float]] = []
    peers: dict[int, list[int]] = defaultdict(list)
    for b in blocked:
        peers[int(begins[b.activity])].append(b.activity)
    for b in blocked:
        transfer, piece = b.activity, float(pieces.piece[b.activity])
        if b.before:
            work = float(pieces.lengths[list(b.before)].sum()) / pieces.count
            first = b.before[0]
            last = b.before[-1]
            rows.append(
                (
                    int(graph.start[first]),
                    int(graph.start[transfer]),
                    work + _measure_stalls(model, b.before),
                )
            )
            for peer in peers[int(begins[transfer])]:
                rows.append((int(graph.end[last]), int(graph.end[peer]), piece))
        if b.after:
            work = float(pieces.lengths[list(b.after)].sum()) / pieces.count
            rows.append((int(begins[transfer]), int(graph.start[b.after[0]]), piece))
            rows.append((int(graph.end[transfer]), int(graph.end[b.after[-1]]), work))
        if b.before and b.after:  # where the transfer ran between them on their own stream
            rows.append((int(graph.end[b.before[-1]]), int(graph.start[b.after[0]]), 0.0))
    rows += [(int(graph.end[a]), int(graph.start[b]), 0.0) for a, b in _in_turn(model, blocked)]
    tails, heads, weights = (np.array(column) for column in zip(*rows, strict=True))
    return tails.astype(np.int64), heads.astype(np.int64), np.rint(weights).astype(np.int64)


def _in_turn(model: StepModel, blocked: Sequence[BlockingTransfer]) -> list[tuple[int, int]]:
    """Neighbours among the transfers of a stream: they still follow each other."""
    lane = model.graph.activities.lane
    pairs = []
    latest: dict[int, int] = {}
    for b in blocked:  # of a rank from the first on
        own = int(lane[b.activity])
        if own in latest:
            pairs.append((latest[own], b.activity))
        latest[own] = b.activity
    return pairs


def _measure_stalls(model: StepModel, run: Sequence[int]) -> float:
    """Time within a run of activities in which none of them runs, as recorded."""
    acts = model.graph.activities
    own = list(run)
    span = int(acts.end[own[-1]] - acts.start[own[0]])
    return float(max(span - int(acts.length[own].sum()), 0))


def hide_blocking(model: StepModel, blocked: Sequence[BlockingTransfer]) -> StepModel:
    """Return the step in which nobody waits for these transfers: what no split can beat."""
    chosen = np.zeros(len(model.facts.op), bool)
    chosen[[b.activity for b in blocked]] = True
    return model.with_lengths(chosen, 0)


def launched_again(model: StepModel, edges: Mask, times: int) -> StepModel:
    """Return the step with CPU time that is spent for each piece."""
    weight = np.where(edges & (model.weight > NEVER), model.weight * times, model.weight)
    return replace(model, weight=weight)
