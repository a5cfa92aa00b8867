"""Another micro-batch: which kernels grow, and how.

A matrix product whose rows are tokens fills more waves of blocks, or of larger ones; one that sums
over tokens (the gradient of a weight) takes longer by as many steps (`products`); all else that
sees activations grows with its bytes above the shortest time of a kernel, and collectives of
activations with theirs. Optimizer, parameter copies, collectives of parameters and the CPU stay as
they are, so that a launch-bound step shows itself in the replay.
"""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.base.errors import UsageError
from htk.whatif.edit_arguments import parse_factor
from htk.whatif.fsdp_units import of_weights
from htk.whatif.parallel import carries_activations
from htk.whatif.products import find_products, round_up_waves
from htk.whatif.shapes import copies_samples, copies_weights, read_inputs
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "batch"
HELP = (
    "Micro-batch: so many times the recorded one (2x), a number (64) where shapes tell it, or "
    "samples of all ranks in a step (global=512) with as many micro-batches as now."
)

SHORTEST_NS = 2_500.0  # no kernel takes less, however little it does; some GPUs are quicker
_BRIEF_NS = 1_000.0  # but none as quick
_OF_PARAMETERS = re.compile(
    r"_foreach|_fused_(?:adam|sgd|adagrad)|fsdp|chunk_cat|split_with_sizes_copy|c10d|ptimizer|aten::zero_|_amp_"
)
_SIGMA = 0.04
_FAR_SIGMA = 0.08
_UNFILLED_SIGMA = 0.25
_UNFILLED_TOLD = 0.005


def apply(model: StepModel, value: str) -> StepModel:
    ratio = _parse_batch_ratio(model, value)
    growing = mark_growing(model)
    if not growing.any():
        raise UsageError(f"{NAME}: no kernel of the step is known to work on the batch")
    old = model.lengths().astype(np.float64)
    new = _scale_again(model, old, ratio)
    unfilled = _share_unfilled(model, growing, old, ratio)
    sigma = _SIGMA if 0.5 <= ratio <= 2 else _FAR_SIGMA
    if ratio < 0.5:  # uncertainty of what is left, of what goes
        sigma *= ratio / (1 - ratio)
    copied = copies_samples(model)
    sent = carries_activations(model)
    length = np.where(copied, old * ratio, new)
    if sent.any():
        length = np.where(sent, rescale_transfers(model, sent, ratio), length)
    changed = replace(
        model.with_lengths(growing | copied | sent, length),
        samples=model.samples * ratio,
        activation_scale=model.activation_scale * ratio,
        token_scale=model.token_scale * ratio,
        before_tokens=model.before_tokens or model,
    )
    if sent.any():
        changed = changed.with_uncertainty("communication", 0.1).with_assumption(
            "collectives of activations grow too"
        )
    small = (
        [f"{100 * unfilled:.0f} % of that is in kernels that do not fill the GPU once, less sure"]
        if unfilled >= _UNFILLED_TOLD
        else []
    )
    return changed.with_uncertainty("compute", sigma + unfilled * _UNFILLED_SIGMA).with_assumption(
        f"micro-batch {ratio:g} times the recorded one",
        f"{100 * old[growing].sum() / max(old[model.is_compute].sum(), 1):.0f} % of compute time "
        "grows with it; optimizer, parameter collectives and CPU time stay",
        *small,
    )


def mark_growing(model: StepModel) -> NDArray[np.bool_]:
    """Return the kernels that work on activations."""
    return model.once("grows", lambda: _mark_growing(model)).copy()


def _mark_growing(model: StepModel) -> NDArray[np.bool_]:
    of_parameters = model.facts.op.where(_OF_PARAMETERS.search) | model.facts.of_gradients
    of_parameters |= copies_weights(model)
    optimizer = model.facts.family.isin("optimizer", "communication")
    return np.asarray(model.is_compute & ~of_parameters & ~optimizer)


def _parse_batch_ratio(model: StepModel, value: str) -> float:
    if value.endswith("x"):
        return parse_factor(value, NAME)
    now = read_inputs(model).batch
    if now is None:
        raise UsageError(
            f"{NAME} {value!r}: the recorded batch is not known (record_shapes=True would tell); "
            "give a factor such as 2x"
        )
    return parse_factor(value, NAME) / now


def _scale_again(model: StepModel, old: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    """Return the lengths with so many times the tokens of now.

    Shapes and blocks are those of the recording: where an edit changed the tokens before, kernels
    are reckoned from there to both in one go.
    """
    before = model.before_tokens
    if before is None or before.graph is not model.graph:
        return _scale_lengths(model, old, ratio)
    recorded = before.lengths().astype(np.float64)
    now = _scale_lengths(before, recorded, model.token_scale)
    then = _scale_lengths(before, recorded, model.token_scale * ratio)
    return old * np.where(now > 0, then / np.maximum(now, 1.0), 1.0)


def _scale_lengths(model: StepModel, old: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    least = find_shortest_time(model, old)
    fixed = np.minimum(old, least)
    matrix = model.facts.family.isin("gemm", "convolution")
    inner = of_weights(model)
    seen = find_products(model, least)
    attention = model.facts.family.isin("attention")
    rows = (matrix & ~inner) | attention
    fixed = np.where(rows & (old <= least), 0, fixed)
    moving = old - fixed
    new = fixed + moving * np.where(rows, _count_wave_ratio(model, attention, ratio), ratio)
    new[seen.activity] = np.where(inner[seen.activity], seen.longer(ratio), seen.taller(ratio))
    if ratio < 1:  # libraries take smaller tiles, as far as there are any
        new = np.where(rows, fixed + np.sqrt(np.maximum(new - fixed, 0) * moving * ratio), new)
    return new


def _count_wave_ratio(
    model: StepModel, attention: NDArray[np.bool_], ratio: float
) -> NDArray[np.float64]:
    """Return how many times as many waves each kernel takes for `ratio` times the blocks."""
    waves = np.nan_to_num(model.facts.blocks, nan=1e9)
    least = np.maximum(waves, 1e-3)
    evenly = model.facts.persistent
    each = round_up_waves(least * ratio, evenly) / round_up_waves(least, evenly)
    # blocks of attention differ in length, so that the last wave is no whole one
    return np.where(attention, np.maximum(waves * ratio, 1) / np.maximum(waves, 1), each)


def find_shortest_time(model: StepModel, old: NDArray[np.float64]) -> float:
    """Return the time below which no kernel goes, in ns, however little it does: that of the
    shortest one recorded, within reason."""
    seen = old[model.is_compute & (old >= _BRIEF_NS)]
    return min(SHORTEST_NS, float(seen.min(initial=SHORTEST_NS)))


def _share_unfilled(
    model: StepModel, growing: NDArray[np.bool_], old: NDArray[np.float64], ratio: float
) -> float:
    """Return the share of the growing time in kernels of less than a wave, before or after."""
    waves = np.nan_to_num(model.facts.blocks, nan=1e9)
    few = growing & (np.minimum(waves, waves * ratio) < 1)
    return float(old[few].sum() / max(old[growing].sum(), 1.0))
