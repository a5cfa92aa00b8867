"""Sequences of another length, or of several lengths.

Tokens grow with the length and all that works on them, as with the batch; attention looks at each
pair of tokens, and so grows with its square. Samples of different lengths are padded to the longest
of their micro-batch, or packed one behind the other, in which case attention sees each alone.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.whatif.edit_arguments import parse_ratio
from htk.whatif.edits import batch
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.recorded_job import recorded_job
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel

NAME = "seq"
HELP = (
    "Tokens of a sequence: 2048, 2x, or lengths with their shares, padded to the longest of a "
    "micro-batch (512:0.7,2048:0.3) or packed (512:0.7,2048:0.3,packed)."
)

_PAIR = re.compile(r"(\d+):(\d*\.?\d+)")
_WHOLE = 0.01  # shares sum to 1 within
_OF_HEADS = 3  # dimensions of a product of batches, one for each head
_MOST = 32  # times the recorded length
_SIGMA = 0.06  # of attention beyond its tokens


@dataclass(frozen=True)
class Lengths:
    """Means over samples: of tokens with their padding, and of pairs of tokens."""

    tokens: float
    pairs: float


def apply(model: StepModel, value: str) -> StepModel:
    seen = read_inputs(model)
    now = recorded_job(model).seq
    wanted = _parse_lengths(value, now, seen.batch)
    if now is None:  # a factor
        ratio = wanted.tokens
        looked = wanted.pairs
    else:
        ratio = wanted.tokens / now
        looked = wanted.pairs / now**2
    if ratio > _MOST:
        raise UsageError(
            f"{NAME} {value!r}: {ratio:.3g} times the recorded length is far outside what was "
            f"tested; up to {_MOST} times are answered"
        )
    changed = batch.apply(model, f"{ratio:.9f}x") if ratio != 1 else model
    attention = model.facts.family.isin("attention") | _on_scores(model)
    length = changed.lengths().astype(np.float64)
    fixed = np.minimum(length, batch.SHORTEST_NS)
    changed = changed.with_lengths(attention, fixed + (length - fixed) * looked / ratio)
    words = "sequences"
    if now is not None:
        words += f" of {wanted.tokens:.4g} tokens in the mean, padding included"
    work = 1.0 if ratio == looked == 1 else float("nan")
    return replace(
        changed.with_uncertainty("compute", max(changed.spread.get("compute", 0.0), _SIGMA)),
        length_scale=model.length_scale * ratio,
        work=work,
        assumptions=(
            *model.assumptions,
            f"{words} {ratio:.3g} times as long as recorded; attention {looked:.3g} times",
        ),
    )


def _on_scores(model: StepModel) -> Mask:
    """Return the kernels of an attention that runs in parts, whose work grows with the pairs of
    tokens: batched products, and all on matrices as wide as they are long."""
    batch_size, tokens = read_inputs(model)
    if not batch_size or not tokens:
        return np.zeros(len(model.facts.dims), bool)
    length = tokens // batch_size

    def multiplies_pairs(dims: str) -> bool:
        shapes = [shape for shape in operator_shapes(dims) if len(shape) == _OF_HEADS][:2]
        return sum(shape[1:].count(length) for shape in shapes) > 1

    def holds_pairs(dims: str) -> bool:
        shapes = operator_shapes(dims)
        return any(shape[2:] == (length, length) for shape in shapes)

    products = model.facts.op.where(lambda op: op == "aten::bmm")
    paired: Mask = products & model.facts.dims.where(multiplies_pairs)
    return paired | model.facts.dims.where(holds_pairs)


def mean_length(value: str, now: float | None, samples: float | None) -> float | None:
    """Return the tokens of a sequence in the mean; None: a factor of a length that is not known."""
    if now is None and value.strip().endswith("x"):
        return None
    return _parse_lengths(value, now, None if samples is None else round(samples)).tokens


def _parse_lengths(value: str, now: float | None, samples: int | None) -> Lengths:
    """Return the lengths asked for; of a factor where the recorded length is not known, that."""
    parts = value.split(",")
    if ":" not in value:
        how = "the recorded length is not known (record_shapes=True and named groups would tell)"
        ratio = parse_ratio(value, now, NAME, how)
        tokens = ratio * (now or 1.0)
        return Lengths(tokens, tokens**2)
    packed = parts[-1] == "packed"
    pairs = [_PAIR.fullmatch(part.strip()) for part in parts[: len(parts) - packed]]
    shares = sorted((int(m[1]), float(m[2])) for m in pairs if m is not None)
    if len(shares) < len(pairs) or abs(sum(share for _, share in shares) - 1) > _WHOLE:
        raise UsageError(
            f"{NAME} {value!r}: lengths with shares that sum to 1 were expected, such as "
            "512:0.7,2048:0.3"
        )
    if now is None or samples is None:
        raise UsageError(
            f"{NAME} {value!r}: the recorded length is not known (record_shapes=True would tell); "
            "give a factor such as 2x"
        )
    return compute_lengths(shares, 1 if packed else samples)


def compute_lengths(shares: list[tuple[int, float]], samples: int) -> Lengths:
    """Return the means where each of so many samples is padded to the longest of them.

    `shares`: of each length, shortest first.
    """
    tokens, share = np.array(shares).T
    up_to = np.cumsum(share / share.sum())
    longest = np.diff(np.append(0.0, up_to**samples))
    return Lengths(float(longest @ tokens), float(longest @ tokens**2))
