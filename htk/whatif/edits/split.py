"""Work cut in pieces, so that the transfer of one runs beside the compute of another.

Three ways that are in use: the batch in two halves that take turns from layer to layer (ISO,
NanoFlow, DualPipe); a product and the transfer beside it, piece by piece (asynchronous tensor
parallelism); a product whose tiles are sent as they are done (T3, fused kernels).
"""

import re
from dataclasses import replace

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.quantities.graph.replay import replay_graph
from htk.whatif.contention import compute_contention, settle_contention, share_beside_transfers
from htk.whatif.edits import batch
from htk.whatif.edits.overlap import USUAL_CONTENTION
from htk.whatif.host_cost import calls_of_all, cpu_edges
from htk.whatif.parallel import of_activations
from htk.whatif.splits import (
    BlockingTransfer,
    Pieces,
    cut_into,
    hide_blocking,
    launched_again,
    list_blocking,
)
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import find_latencies

NAME = "split"
HELP = (
    "Transfers of activations beside compute: batch (two halves take turns), tensor or tensor=4 "
    "(a product and its transfer in pieces), fused (tiles are sent as they are done)."
)

_WORDS = {
    "batch": "the batch in two halves: one is sent while the other computes",
    "tensor": "products and the transfers beside them, each in {} pieces that overlap",
    "fused": "products whose {} tiles are sent as each is done",
}
_TILES = 16  # of a product: rows of its blocks
_MOST = 64
_MATRIX = ("gemm", "attention")
_OF_PIECES = 0.3  # one sigma: how well pieces follow each other, relative to what moves
_OF_TRANSFERS = 0.2


def apply(model: StepModel, value: str) -> StepModel:
    how, count = _parse_asked(model, value)
    if count == 1:
        return model.with_assumption("one piece: as it is")
    sent = of_activations(model)
    if not sent.any():
        raise UsageError(
            f"{NAME}: the step holds no transfer of activations (all-reduces of tensor "
            "parallelism, all-to-alls of experts)"
        )
    blocked = list_blocking(model, sent, _mark_cuttable(model, how), whole_runs=how == "batch")
    if how == "fused":
        blocked = [replace(b, after=()) for b in blocked if b.before]
    if not blocked:
        raise UsageError(f"{NAME}: compute waits for none of {int(sent.sum())} transfers")
    pieces = _describe_pieces(model, how, count, blocked)
    changed = _launch_pieces(model, how, count, blocked)
    changed = cut_into(changed, blocked, pieces)
    changed, words = _bound_gain(model, _contend_compute(model, changed, blocked), blocked)
    return (
        replace(changed, low_confidence=True)
        .with_uncertainty("compute", _OF_PIECES)
        .with_uncertainty("dependencies", _OF_PIECES)
        .with_uncertainty("communication", _OF_TRANSFERS)
        .with_assumption(
            f"{_WORDS[how].format(count)}; {len(blocked)} of {int(sent.sum())} transfers of "
            "activations are waited for",
            *words,
        )
    )


def read_cut(value: str) -> tuple[str, str | None]:
    """Return what is cut, and into how many pieces where that is asked for."""
    match = re.fullmatch(r"(batch|tensor|fused)(?:=(\d{1,3}))?", value)
    if match is None or (match[1] == "batch" and match[2]):
        raise UsageError(f"{NAME} {value!r}: batch, tensor, tensor=4, fused or fused=16")
    return match[1], match[2]


def _parse_asked(model: StepModel, value: str) -> tuple[str, int]:
    how, pieces = read_cut(value)
    ranks = int(model.facts.group_size[of_activations(model)].max(initial=2))
    count = int(pieces or {"batch": 2, "tensor": max(ranks, 2), "fused": _TILES}[how])
    if not 1 <= count <= _MOST:
        raise UsageError(f"{NAME} {value!r}: 1 to {_MOST} pieces were expected")
    return how, count


def _mark_cuttable(model: StepModel, how: str) -> Mask:
    """Return the compute that may be cut: all on activations, or products beside a transfer."""
    growing = batch.mark_growing(model)
    if how == "batch":
        return growing
    return np.asarray(growing & model.facts.family.isin(*_MATRIX))


def _describe_pieces(
    model: StepModel, how: str, count: int, blocked: list[BlockingTransfer]
) -> Pieces:
    """Return what all pieces take: kernels on a part of the batch as another batch has them, and a
    latency for each piece that is sent."""
    lengths = model.lengths().astype(np.float64)
    sent = np.zeros(len(lengths), bool)
    sent[[b.activity for b in blocked]] = True
    piece = lengths / count
    if how == "fused":
        return Pieces(count, lengths, piece)
    smaller = batch.apply(model.fresh(), f"{1 / count:.9f}x").lengths() * count
    fixed = np.minimum(find_latencies(model), lengths)
    piece = fixed + (lengths - fixed) / count
    together = np.where(sent, count * piece, np.maximum(smaller, lengths))
    return Pieces(count, together, piece)


def _launch_pieces(
    model: StepModel, how: str, count: int, blocked: list[BlockingTransfer]
) -> StepModel:
    """Launch each piece by itself; those of a graph go with it, and tiles with their product."""
    if how == "fused":
        return model
    chosen = np.zeros(len(model.facts.op), bool)
    for b in blocked:
        chosen[[b.activity, *b.before, *b.after]] = True
    calls = calls_of_all(model, chosen)
    launched = np.bincount(
        model.graph.activities.call[model.graph.activities.call >= 0],
        minlength=len(model.graph.call_start),
    )
    single = calls[launched[calls] == 1]
    return launched_again(model, cpu_edges(model, single), count)


def _contend_compute(
    model: StepModel, changed: StepModel, blocked: list[BlockingTransfer]
) -> StepModel:
    """Return the changed model with compute slowed beside transfers by the usual factor, where the
    trace does not tell how much slower it gets."""
    if compute_contention(model):
        return changed  # the replay settles it
    length = changed.lengths().astype(np.float64)
    slower = np.ones(len(length))
    for b in blocked:
        beside = [*b.before, *b.after]
        phi = min(float(length[b.activity]) / max(float(length[beside].sum()), 1.0), 1.0)
        slower[beside] = np.maximum(slower[beside], 1 + USUAL_CONTENTION * phi)
    return changed.with_lengths(model.is_compute, length * slower).with_assumption(
        f"compute with communication beside it takes {1 + USUAL_CONTENTION:.2f} times as long: "
        "usual; the trace does not tell"
    )


def _bound_gain(
    model: StepModel, changed: StepModel, blocked: list[BlockingTransfer]
) -> tuple[StepModel, tuple[str, ...]]:
    """Return the changed model, no better than if nobody waited for these transfers, and how
    much of that it wins."""
    kappa = compute_contention(model)
    beside = share_beside_transfers(model, model.graph.time)
    now = replay_graph(model.graph, model.weight, model.wrap_weight).period_ns
    bare = hide_blocking(model, blocked)
    perfect = replay_graph(bare.graph, bare.weight, bare.wrap_weight).period_ns
    _, after = settle_contention(changed, kappa, beside)
    short = perfect - after.period_ns
    if short > 0:
        changed = changed.add_step_time("communication", short, exposed=short)
    won = now - max(after.period_ns, perfect)
    most = now - perfect
    if most <= 0:
        return changed, ("nobody waits for them as it is: there is nothing to win",)
    return changed, (
        f"of the {most / 1e6:.3g} ms ({100 * most / now:.1f} % of the step) that perfect overlap "
        f"of these transfers would win, it wins {won / 1e6:.3g} ms ({100 * won / most:.0f} %)",
    )
