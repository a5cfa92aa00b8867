"""What ranges of inputs make of an answer: its interval, and which input it comes from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Floats
from htk.base.core.ranges import ValueRange

DRAWS = 2048
_BINS = 32
_SEED = 20_210_607  # the same answer each time
CHANCE = "chance"  # what is random though every input were known


@dataclass(frozen=True)
class ObservedCount:
    """A rate that is known by counting: so many in so much time."""

    count: int
    exposure: float

    @property
    def middle(self) -> float:
        return (self.count or 0.5) / self.exposure


Inputs = Mapping[str, ValueRange | ObservedCount]


def draw_inputs(inputs: Inputs) -> dict[str, Floats]:
    """Return draws of each input: of a range stratified, of a counted rate its posterior
    (Jeffreys). Inputs are independent; `CHANCE` is a standard normal variable."""
    random = np.random.default_rng(_SEED)
    columns = _draw_from(inputs, random)
    columns[CHANCE] = random.standard_normal(DRAWS)
    return columns


def drawn_once(inputs: Inputs, seed: int) -> dict[str, Floats]:
    """Return draws of further inputs, independent of others with another seed."""
    return _draw_from(inputs, np.random.default_rng([_SEED, seed]))


def _draw_from(inputs: Inputs, random: np.random.Generator) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for name, value in inputs.items():
        if isinstance(value, ObservedCount):
            columns[name] = random.gamma(value.count + 0.5, 1 / value.exposure, DRAWS)
            continue
        shares = (random.permutation(DRAWS) + random.random(DRAWS)) / DRAWS
        if value.low > 0:
            columns[name] = value.low * (value.high / value.low) ** shares
        else:
            columns[name] = value.low + (value.high - value.low) * shares
    return columns


def evaluate_draws(
    inputs: Inputs, answer: Callable[[Mapping[str, float]], Mapping[str, float]]
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the draws of the inputs and of each answer.

    A loop: the formulas are of single numbers, and there are two thousand draws.
    """
    columns = draw_inputs(inputs)
    rows = [
        answer({name: float(column[row]) for name, column in columns.items()})
        for row in range(DRAWS)
    ]
    return columns, {name: np.array([row[name] for row in rows]) for name in rows[0]}


def middle_of(inputs: Inputs) -> dict[str, float]:
    """Return each input's middle, and no luck either way."""
    return {name: value.middle for name, value in inputs.items()} | {CHANCE: 0.0}


def find_interval(values: Floats, share: float = 0.9) -> tuple[float, float]:
    """Return the ends between which such a share of the draws lies."""
    outside = (1 - share) / 2
    low, high = np.quantile(values, (outside, 1 - outside))
    return float(low), float(high)


def shares_of_width(inputs: Mapping[str, Floats], answer: Floats) -> dict[str, float]:
    """Return the part of the answer's variance that each input explains by itself, largest first.

    The variance of the means over slices of an input (first-order Sobol index), less what as many
    slices show of an input that does not matter.
    """
    total = float(answer.var())
    if not total > 0:
        return {}
    noise = (_BINS - 1) / (len(answer) - 1)
    explained = {}
    for name, column in inputs.items():
        if column.min() == column.max():
            continue
        means = answer[np.argsort(column)].reshape(_BINS, -1).mean(axis=1)
        share = (float(means.var()) / total - noise) / (1 - noise)
        if share > 0.005:
            explained[name] = share
    return dict(sorted(explained.items(), key=lambda item: -item[1]))
