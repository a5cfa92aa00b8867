"""How far the clocks of ranks are apart, from collectives that end everywhere at once.

Offset (and, over a second or more, drift) of each rank by weighted least squares over the ends of
synchronising collectives, in groups that overlap; groups that share no rank cannot be compared.
Nobody can end before the last one has begun: where the fit says so, it is moved until that holds.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import matching, number, numbers, truths
from htk.columns.groups import Groups
from htk.columns.types import NONE, Floats, Ints
from htk.derived.match import CollectiveRows, timed_columns
from htk.derived.waits import waits
from htk.names.collectives import SYNCHRONISING
from htk.schema.comm import COLLECTIVE_MATCHES, RANK_CLOCKS

_ROUNDS = 3  # of weighting by how well each collective's ends agree
_FLOOR_NS = 1000.0  # ends agree no better than this
_SECOND = 1e9
_PUSHES = 50


@dataclass
class _Ends:
    """Synchronising collectives seen by several ranks, a row for each of their rows."""

    which: Ints  # collective
    rank: Ints  # position in `ranks`
    start: Floats  # since the reference
    end: Floats
    ranks: Ints
    reference: int
    count: int


def rank_clocks(collectives: pa.Table, collective_matches: pa.Table) -> pa.Table:
    """Offset, drift and residual of each rank that took part in anything."""
    profiled = matching(collectives["source"], "kineto".__eq__)
    if (
        profiled.any() and not profiled.all()
    ):  # other records may count ranks within a communicator, on other clocks
        mine = pa.array(profiled)
        collectives, collective_matches = collectives.filter(mine), collective_matches.filter(mine)
    ends = _ends(CollectiveRows(collectives), numbers(collective_matches["match"], NONE))
    lead = _components(ends)
    offset, drift = _fitted(ends, lead)
    offset = offset + _pushed(ends, offset, drift)
    offset -= offset[np.searchsorted(ends.ranks, lead)] if len(lead) else 0.0
    late = _violations(ends, offset, drift)
    seen = np.bincount(ends.rank, minlength=len(ends.ranks))
    known = seen > 0
    columns = [
        number(ends.ranks, pa.int32()),
        number(lead, pa.int32(), known),
        number(np.rint(offset), pa.int64(), known),
        number(drift * 1e6, pa.float64(), known),
        number(np.full(len(known), ends.reference), pa.int64(), known),
        number(_residual(ends, offset, drift), pa.float64(), known),
        number(seen, pa.int64()),
        number(np.bincount(ends.rank[late], minlength=len(known)), pa.int64()),
    ]
    return pa.table(columns, schema=RANK_CLOCKS)


def aligned_matches(
    collectives: pa.Table, collective_matches: pa.Table, rank_clocks: pa.Table
) -> pa.Table:
    """The matches with everything that depends on the clocks put on one clock."""
    rows = CollectiveRows(collectives)
    match = numbers(collective_matches["match"], NONE)
    shift = corrections(rank_clocks, rows.rank, rows.start)
    start, end = rows.start + shift, rows.end + shift
    before = truths(collective_matches["before_window"])
    waited = waits(rows, match, start, end)  # pyright: ignore[reportArgumentType]
    made = {name: collective_matches[name] for name in COLLECTIVE_MATCHES.names}
    made |= timed_columns(rows, match, waited, before, start, end)
    made["clock_offset_ns"] = number(shift, pa.int64())
    return pa.table([made[f.name] for f in COLLECTIVE_MATCHES], schema=COLLECTIVE_MATCHES)


def corrections(clocks: pa.Table, rank: Ints, time: Ints) -> Ints:
    """What to add to times of ranks, so that they are on one clock; 0 where it is unknown."""
    known = numbers(clocks["rank"])
    if not len(known):
        return np.zeros(len(rank), np.int64)
    place = np.minimum(np.searchsorted(known, rank), len(known) - 1)
    since = time - numbers(clocks["reference_ns"])[place]
    drift = numbers(clocks["drift_ppm"])[place] * 1e-6
    shift = numbers(clocks["offset_ns"])[place] + np.rint(drift * since).astype(np.int64)
    return np.where(known[place] == rank, shift, 0)


def _ends(rows: CollectiveRows, match: Ints) -> _Ends:
    use = (match != NONE) & rows.timed & rows.is_type(*SYNCHRONISING)
    chosen = np.flatnonzero(use)
    groups = Groups.by_keys(match[chosen])
    chosen = chosen[(groups.count > 1)[groups.group_ids]]
    groups = Groups.by_keys(match[chosen])
    ranks = np.unique(rows.rank[rows.rank >= 0])
    reference = int(rows.end[chosen].min()) if len(chosen) else 0
    return _Ends(
        groups.group_ids,
        np.searchsorted(ranks, rows.rank[chosen]),
        (rows.start[chosen] - reference).astype(np.float64),
        (rows.end[chosen] - reference).astype(np.float64),
        ranks,
        reference,
        len(groups),
    )


def _components(ends: _Ends) -> Ints:
    """The lowest rank that each rank's clock can be compared with, over groups that overlap."""
    lead = np.arange(len(ends.ranks))
    while True:  # as often as the chain of groups is long
        least = np.full(ends.count, len(lead))
        np.minimum.at(least, ends.which, lead[ends.rank])
        after = lead.copy()
        np.minimum.at(after, ends.rank, least[ends.which])
        if (after == lead).all():
            return ends.ranks[lead] if len(lead) else lead
        lead = after


def _fitted(ends: _Ends, lead: Ints) -> tuple[Floats, Floats]:
    """Offset and drift (ns per ns) of each rank; the lowest of each component is the measure."""
    size = len(ends.ranks)
    offset, drift = np.zeros(size), np.zeros(size)
    weight = np.ones(ends.count)
    for _ in range(_ROUNDS if ends.count else 0):
        offset, drift = _solved(ends, weight, lead)
        spread = _spread(ends, offset, drift)
        weight = _FLOOR_NS**2 / (spread**2 + _FLOOR_NS**2)
    return offset, drift


def _solved(ends: _Ends, weight: Floats, lead: Ints) -> tuple[Floats, Floats]:
    """Normal equations, the common end of each collective eliminated.

    Collectives of the same members add to one block: with weights w, times x and ends e, the
    block is (sum w x^k) (I - 11'/n) and the right side -(I - 11'/n) sum w x^k e.
    """
    size = len(ends.ranks)
    with_drift = _span(ends) >= _SECOND
    unknowns = 2 * size if with_drift else size
    matrix, right = np.zeros((unknowns, unknowns)), np.zeros(unknowns)
    for members, rows in _same_members(ends):
        number_of = len(members)
        end = ends.end[rows].reshape(-1, number_of)  # a row for each collective
        x = end.mean(axis=1) / _SECOND
        w = weight[ends.which[rows[::number_of]]]
        block = np.eye(number_of) - 1.0 / number_of
        for i in range(2 if with_drift else 1):
            right[members + i * size] -= block @ ((w * x**i) @ end)
            for j in range(2 if with_drift else 1):
                place = np.ix_(members + i * size, members + j * size)
                matrix[place] += block * (w * x ** (i + j)).sum()
    fixed = np.isin(ends.ranks, lead) & (lead == ends.ranks)
    free = np.flatnonzero(np.tile(~fixed, unknowns // size))
    solved = np.zeros(unknowns)
    solved[free] = np.linalg.lstsq(matrix[np.ix_(free, free)], right[free], rcond=None)[0]
    drift = solved[size:] / _SECOND if with_drift else np.zeros(size)
    return solved[:size], drift


def _span(ends: _Ends) -> float:
    return float(np.ptp(ends.end)) if len(ends.end) else 0.0


def _same_members(ends: _Ends) -> list[tuple[Ints, Ints]]:
    """Ranks, and rows of all collectives of exactly those, ordered by collective and rank."""
    order = np.lexsort((ends.rank, ends.which))
    count = np.bincount(ends.which, minlength=ends.count)
    first = np.cumsum(count) - count
    sets: dict[bytes, list[int]] = {}
    rank = ends.rank[order]
    for k in range(ends.count):  # to tell sets of ranks apart; they are few, and short
        key = rank[first[k] : first[k] + count[k]].tobytes()
        sets.setdefault(key, []).append(k)
    found = []
    for key, which in sets.items():
        members = np.frombuffer(key, rank.dtype)
        starts = first[np.array(which)]
        found.append((members, order[(starts[:, None] + np.arange(len(members))).ravel()]))
    return found


def _aligned(ends: _Ends, times: Floats, offset: Floats, drift: Floats) -> Floats:
    return times + offset[ends.rank] + drift[ends.rank] * times


def _off_common(ends: _Ends, offset: Floats, drift: Floats) -> Floats:
    """Each aligned end, less the mean of its collective."""
    end = _aligned(ends, ends.end, offset, drift)
    count = np.bincount(ends.which, minlength=ends.count)
    mean = np.bincount(ends.which, end, minlength=ends.count) / np.maximum(count, 1)
    off: Floats = end - mean[ends.which]
    return off


def _spread(ends: _Ends, offset: Floats, drift: Floats) -> Floats:
    off = _off_common(ends, offset, drift)
    count = np.bincount(ends.which, minlength=ends.count)
    return np.sqrt(np.bincount(ends.which, off**2, minlength=ends.count) / np.maximum(count, 1))


def _residual(ends: _Ends, offset: Floats, drift: Floats) -> Floats:
    off = _off_common(ends, offset, drift)
    count = np.bincount(ends.rank, minlength=len(ends.ranks))
    total = np.bincount(ends.rank, off**2, minlength=len(ends.ranks))
    return np.sqrt(total / np.maximum(count, 1))


def _shortfall(ends: _Ends, offset: Floats, drift: Floats) -> Floats:
    """By how much each end lies before the last start of its collective (0: it does not)."""
    start = _aligned(ends, ends.start, offset, drift)
    latest = np.full(ends.count, -np.inf)
    np.maximum.at(latest, ends.which, start)
    late: Floats = latest[ends.which] - _aligned(ends, ends.end, offset, drift)
    return np.where(late > 0.5, late, 0.0)


def _pushed(ends: _Ends, offset: Floats, drift: Floats) -> Floats:
    """What to add to offsets so that nobody ends before the last one has begun."""
    push = np.zeros(len(ends.ranks))
    for _ in range(_PUSHES):
        late = _shortfall(ends, offset + push, drift)
        if not late.any():
            break
        most = np.zeros(len(push))
        np.maximum.at(most, ends.rank, late)
        push += most / 2
        push -= np.median(push)
    return push


def _violations(ends: _Ends, offset: Floats, drift: Floats) -> NDArray[np.bool_]:
    return _shortfall(ends, offset, drift) > _FLOOR_NS
