"""How much longer transfers take in rings over more nodes: the slowest link sets the pace.

The speed of a link varies from call to call and from group to group. A collective takes as long as
the slowest of its links, which is the highest of as many draws as its group has nodes. The spread
of recorded collectives of one size therefore gives the spread of a link, and with it the expected
highest of more draws.
"""

from math import erf, exp, sqrt

import numpy as np

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints
from htk.quantities.graph.nodes import collective_rows
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import LARGE

_FEW = 20  # transfers with others like them: fewer tell no spread
_SIGMA = (0.1587, 0.8413)  # shares within one standard deviation: a rare stall widens them little
_GRID = np.linspace(-8.0, 12.0, 4001)


def slowest_link(model: StepModel, before: int, after: int) -> float:
    """Return how many times as long the bytes of a collective are expected to take when its group
    passes so many nodes; 1 where the recording does not show how links vary."""
    if after == before:
        return 1.0
    spread = model.once("spread of transfers", lambda: _estimate_spread(model))
    lowest, apart = expect_highest(before)
    return exp(spread / apart * (expect_highest(after)[0] - lowest))


def expect_highest(draws: int) -> tuple[float, float]:
    """Return mean and standard deviation of the highest of so many standard normal draws."""
    below = np.array([0.5 * (1 + erf(x / sqrt(2))) for x in _GRID]) ** draws
    share = np.diff(below)
    middle = (_GRID[1:] + _GRID[:-1]) / 2
    mean = float(share @ middle)
    return mean, sqrt(float(share @ (middle - mean) ** 2))


def _estimate_spread(model: StepModel) -> float:
    """Return one standard deviation of the logarithm of large transfers over those at the same
    place of other steps and groups; 0: too few were recorded."""
    matches = model.facts.tables["collective_matches"]
    span = read_numbers(matches["span_ns"], 0).astype(np.float64)
    members = read_numbers(matches["members_expected"], NONE)
    sure = (span > 0) & (members == read_numbers(matches["members_present"], -2))
    if sure.sum() < _FEW:
        return 0.0
    alike = _number_alike(model)
    sure &= alike >= 0
    _, first = np.unique(read_numbers(matches["match"], NONE)[sure], return_index=True)
    rows = np.flatnonzero(sure)[first]
    positions = Groups.by_keys(alike[rows])
    count = positions.count[positions.group_ids]
    log = np.log(span[rows])
    mean = np.bincount(positions.group_ids, log) / positions.count
    apart = (log - mean[positions.group_ids]) * np.sqrt(count / np.maximum(count - 1, 1))
    if (count > 1).sum() < _FEW:
        return 0.0
    low, high = np.quantile(apart[count > 1], _SIGMA)
    return float(high - low) / 2


def _number_alike(model: StepModel) -> Ints:
    """Return a number for each recorded collective: those of one type and size at one place of a
    step have the same; -1: small ones, or not of the step."""
    calls = model.facts.tables["collectives"]
    into = read_numbers(calls["in_bytes"], NONE)
    out = read_numbers(calls["out_bytes"], NONE)
    size = read_numbers(calls["group_size"], NONE)
    kind = Groups.by_keys([codes_of(calls["type"])[0], into, out, size])
    rank = read_numbers(calls["rank"], NONE)
    group = codes_of(calls["group"])[0]
    lanes = Groups.by_keys([kind.group_ids, rank, group])
    index = lanes.rank_within(read_numbers(calls["start_ns"], 0).astype(np.int64))
    in_step = _in_step(model, lanes)
    position = index % np.maximum(in_step, 1)
    large = np.maximum(into, out) >= LARGE
    number = Groups.by_keys([kind.group_ids, position]).group_ids
    return np.where(large & (in_step > 0), number, -1)


def _in_step(model: StepModel, lanes: Groups) -> Ints:
    """Return how many collectives of its lane the step holds, for each recorded one."""
    rows = model.facts.rows
    index = collective_rows(model.facts.tables, rows[rows >= 0])
    count = np.bincount(lanes.group_ids[index[index >= 0]], minlength=len(lanes))
    return np.asarray(count[lanes.group_ids])
