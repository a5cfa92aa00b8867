"""Kernels, or those of an operator or module, made faster, fused or removed."""

import math
import re

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Mask
from htk.base.core.humanize import parse_pattern, pluralize_count
from htk.base.errors import UsageError
from htk.quantities.graph.replay import find_critical_edges, replay_graph
from htk.whatif.amdahl import build_guard
from htk.whatif.edit_arguments import parse_factor
from htk.whatif.host_cost import remove_launches
from htk.whatif.rms_norms import rms_norms
from htk.whatif.step_model import StepModel

NAME = "replace"
HELP = (
    "Kernels, operators or modules by pattern: PATTERN=2x faster, PATTERN=fused, PATTERN=gone; "
    "with ,claimed=1.6x behind it whether such a speed-up of the step can be."
)

_VALUE = re.compile(r"(.+?)=(gone|fused|[\d.]+x?)(?:,claimed=([\d.]+x?))?")

# What eager code calls a part that has no name of its own in the recording.
_PARTS = {
    "rmsnorm": r"rms_?norm",
    "layernorm": r"layer_?norm",
    "attention": r"attention|flash|sdpa|softmax",
    "swiglu": r"silu|swiglu|aten::mul$",
    "gelu": r"gelu",
    "dropout": r"dropout",
    "rope": r"rotary|rope|aten::(?:cos|sin|neg|cat)$",
    "optimizer": r"optimizer|adam|multi_tensor",
    "crossentropy": r"cross_?entropy|nll_loss|log_softmax",
    "embedding": r"embedding",
}

_FUSED = 0.5  # of the gain: a fused RMSNorm won 3 to 30 % in 22 measured pairs, 15 % in the middle


def apply(model: StepModel, value: str) -> StepModel:
    match = _VALUE.fullmatch(value)
    if match is None:
        raise UsageError(f"{NAME} {value!r}: PATTERN=2x, PATTERN=fused or PATTERN=gone")
    pattern, how, claimed = match.groups()
    chosen, norms = _mark_named(model, pattern), 0
    part = re.sub(r"[^a-z0-9]", "", pattern.removeprefix("(?i)").lower())
    meant = [word for word in _PARTS if part and (word in part or part in word)]
    if not chosen.any() and meant:
        chosen = _mark_named(model, f"(?i){_PARTS[meant[0]]}")
    if not chosen.any() and meant[:1] == ["rmsnorm"]:
        chosen, norms = rms_norms(model)
    if not chosen.any():
        raise UsageError(
            f"{NAME}: no kernel, operator or module of the step is named like {pattern!r}"
        )
    length = model.lengths()
    share = 100 * int(length[chosen].sum()) / max(int(length.sum()), 1)
    words = [f"{int(chosen.sum())} activities ({share:.1f} % of GPU time) match {pattern!r}"]
    if norms:
        words.append(f"{pluralize_count(norms, 'norm')} told by operators: pow, mean, rsqrt, mul")
    if how == "gone":
        changed = remove_launches(model, chosen)
        words.append("their launches go with them")
    elif how == "fused":
        changed = fuse_neighbours(model, chosen)
        words.append(
            "those that follow each other become one, which reads what the first of them reads and "
            "writes what the last one writes; the other launches go"
        )
    else:
        changed = model.with_lengths(chosen, length / parse_factor(how, NAME))
        words.append("their launches stay")
    if claimed:
        words.append(_judge_claim(model, changed, chosen, parse_factor(claimed, "claimed")))
    return changed.with_uncertainty("compute", _FUSED if how == "fused" else 0.1).with_assumption(
        *words
    )


def _mark_named(model: StepModel, pattern: str) -> Mask:
    wanted = parse_pattern(pattern, NAME)
    acts = model.graph.activities
    by_name = np.array([bool(wanted.search(n)) for n in acts.names] + [False])[acts.name]
    chosen = by_name | model.facts.op.where(wanted.search)
    return chosen if chosen.any() else model.facts.module.where(wanted.search)


def fuse_neighbours(model: StepModel, chosen: Mask) -> StepModel:
    """Return the model with one kernel in place of each run of neighbours on a stream.

    It reads what the first of them reads and writes what the last one writes: about half of what
    each of these two moves.
    """
    acts = model.graph.activities
    order = order_by(acts.lane, acts.start)
    fusible = chosen[order]
    lane = acts.lane[order]
    joined = fusible[1:] & fusible[:-1] & (lane[1:] == lane[:-1])
    begins = fusible & ~np.append(False, joined)
    ends = fusible & ~np.append(joined, False)
    length = model.lengths().astype(np.float64)
    fused = (length[order[begins]] + length[order[ends]]) / 2
    length[order[begins]] = fused
    firsts = np.zeros(len(chosen), bool)
    firsts[order[begins]] = True
    return remove_launches(model.with_lengths(firsts, length), chosen & ~firsts)


def _judge_claim(model: StepModel, changed: StepModel, chosen: Mask, claimed: float) -> str:
    """Can a step be so many times faster for this?"""
    again = replay_graph(model.graph, model.weight, model.wrap_weight)
    path = find_critical_edges(model.graph, again.time, model.weight)
    runs = np.isin(path, model.run_edge[chosen & (model.run_edge >= 0)])
    share = float(model.weight[path[runs]].sum()) / max(again.period_ns, 1)
    now = int(model.lengths()[chosen].sum())
    then = int(changed.lengths()[chosen].sum())
    faster = now / then if then else math.inf
    return build_guard(claimed, share, faster).words
