"""How far the clocks of ranks are apart, from collectives that end everywhere at once.

Processes of one host share a clock; where hosts are not recorded, neighbouring ranks whose offsets
agree do. Clocks are compared over groups that overlap; groups that share no clock cannot be. Nobody
can end before the last one has begun: where the fit says so, it is moved until that holds. A set
of clocks is aligned where any of them is off by more than three standard deviations.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.columns.arrow import boolean, matching, number, numbers, truths
from htk.columns.groups import Groups
from htk.columns.types import NONE, Floats, Ints, Mask
from htk.derived.clock_fit import FLOOR_NS, Ends, Fit, fit, standard_errors
from htk.derived.match import LACKING, CollectiveRows, before_window, timed_columns, window_starts
from htk.derived.unrecorded import short_of_members, with_undetermined
from htk.derived.waits import NEVER, waits
from htk.names.collectives import SYNCHRONISING
from htk.schema.comm import COLLECTIVE_MATCHES, RANK_CLOCKS

SIGNIFICANT = 3.0  # standard deviations
_PUSHES = 50
_NEIGHBOURS_NS = 10_000  # ranks further apart than this are not taken to share a clock
_HOST_NS = 5_000  # processes of one host that are further apart than this do not share one


def rank_clocks(collectives: pa.Table, collective_matches: pa.Table, ranks: pa.Table) -> pa.Table:
    """Offset, drift and residual of each rank that took part in anything."""
    profiled = matching(collectives["source"], "kineto".__eq__)
    if (
        profiled.any() and not profiled.all()
    ):  # other records may count ranks within a communicator, on other clocks
        mine = pa.array(profiled)
        collectives, collective_matches = collectives.filter(mine), collective_matches.filter(mine)
    rows = CollectiveRows(collectives)
    known = np.unique(rows.rank[rows.rank >= 0])
    ends = _ends(rows, numbers(collective_matches["match"], NONE), known)
    found = fit(ends, np.arange(len(known)))
    host = _hosts(ranks)
    shared = _shared_clocks(ends, found, [host.get(r) for r in known.tolist()])
    if len(np.unique(shared)) < len(shared):
        found = fit(ends, shared)
    return _described(ends, _pushed(ends, found), known)


def _described(ends: Ends, found: Fit, ranks: Ints) -> pa.Table:
    """A row for each rank."""
    clock = found.clock
    clocks = len(found.zero)
    lowest = np.full(clocks, np.iinfo(np.int64).max)
    np.minimum.at(lowest, clock, ranks)
    offset, reference, drift = found.shifts()
    residual = _residual(ends, found)
    sigma, drift_sigma = standard_errors(ends, found)
    off = np.abs(offset) > SIGNIFICANT * np.hypot(sigma, sigma[found.lead])
    off |= np.abs(drift) > SIGNIFICANT * np.hypot(drift_sigma, drift_sigma[found.lead])
    seen = np.bincount(ends.process, minlength=len(ranks))
    late = np.bincount(ends.process[_shortfall(ends, found) > FLOOR_NS], minlength=len(ranks))
    known = (np.bincount(clock, seen, clocks) > 0)[clock]
    aligned = (np.bincount(found.lead, off, clocks) > 0)[found.lead]
    columns = [
        number(ranks, pa.int32()),
        number(lowest[found.lead][clock], pa.int32(), known),
        number(offset[clock], pa.int64(), known),
        number(drift[clock] * 1e6, pa.float64(), known),
        number(reference[clock], pa.int64(), known),
        number(residual, pa.float64(), seen > 0),
        number(seen, pa.int64()),
        number(late, pa.int64()),
        number(lowest[clock], pa.int32(), known),
        number(sigma[clock], pa.float64(), known),
        number(drift_sigma[clock] * 1e6, pa.float64(), known),
        boolean(aligned[clock] & known),
    ]
    return pa.table(columns, schema=RANK_CLOCKS)


def aligned_matches(
    collectives: pa.Table,
    collective_matches: pa.Table,
    rank_clocks: pa.Table,
    rank_windows: pa.Table,
    ranks: pa.Table,
) -> pa.Table:
    """The matches, with everything that depends on the clocks on one clock where it is needed."""
    rows = CollectiveRows(collectives)
    match = numbers(collective_matches["match"], NONE)
    shift = corrections(rank_clocks, rows.rank, rows.start)
    start, end = rows.start + shift, rows.end + shift
    began = window_starts(rows, rank_windows)
    recorded = np.where(began == NEVER, rows.start, began)
    began = np.where(
        began == NEVER, began, recorded + corrections(rank_clocks, rows.rank, recorded)
    )
    before = before_window(rows, match, start, began)
    waited = waits(rows, match, start, end)  # pyright: ignore[reportArgumentType]
    short = short_of_members(rows, numbers(collective_matches["members_present"], 0), ranks)  # pyright: ignore[reportArgumentType]
    lacking = matching(collective_matches["reason"], LACKING.__eq__)
    waited = with_undetermined(rows, waited, lacking, short, ranks)  # pyright: ignore[reportArgumentType]
    made = {name: collective_matches[name] for name in COLLECTIVE_MATCHES.names}
    made |= timed_columns(rows, match, waited, before, start, end)
    made["before_window"] = boolean(before)
    made["clock_offset_ns"] = number(shift, pa.int64())
    sigma, known = _wait_sigma(rank_clocks, rows, match)
    made["wait_sigma_ns"] = number(sigma, pa.int64(), known & waited.known)
    return pa.table([made[f.name] for f in COLLECTIVE_MATCHES], schema=COLLECTIVE_MATCHES)


def corrections(clocks: pa.Table, rank: Ints, time: Ints) -> Ints:
    """What to add to times of ranks, so that they are on one clock; 0 where the ranks' own clocks
    agree, and where it is unknown."""
    place = _Places(clocks, rank)
    return np.where(place.known & truths(place.clocks["aligned"])[place.row], place.shift(time), 0)


class _Places:
    """The row of the clocks' table that tells of each rank."""

    def __init__(self, clocks: pa.Table, rank: Ints) -> None:
        ranks = numbers(clocks["rank"])
        if not len(ranks):
            ranks = np.full(1, NONE)
            clocks = pa.Table.from_pylist([{"rank": NONE}], schema=RANK_CLOCKS)
        self.clocks = clocks
        self.row = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
        self.known: Mask = (ranks[self.row] == rank) & (rank >= 0)

    def shift(self, time: Ints) -> Ints:
        """What the fit adds to a time, whether or not that is needed."""
        since = time - numbers(self.clocks["reference_ns"])[self.row]
        drift = numbers(self.clocks["drift_ppm"])[self.row] * 1e-6
        offset = numbers(self.clocks["offset_ns"])[self.row]
        return np.asarray(offset + np.rint(drift * since).astype(np.int64))


def _wait_sigma(clocks: pa.Table, rows: CollectiveRows, match: Ints) -> tuple[Ints, Mask]:
    """Standard deviation that the clocks leave to each row's wait, and where it is known.

    It is that of the rank's clock and of the least certain one of the others; where clocks are left
    as recorded, what the fit says that they are off comes on top. One clock leaves none.
    """
    place = _Places(clocks, rows.rank)
    sigma, known = np.zeros(rows.length), np.zeros(rows.length, bool)
    chosen = np.flatnonzero(match != NONE)
    if not len(chosen):
        return sigma.astype(np.int64), known
    members = Groups.by_keys(match[chosen])
    row = place.row[chosen]
    since = rows.start[chosen] - numbers(place.clocks["reference_ns"])[row]
    drifted = numbers(place.clocks["drift_sigma_ppm"], 0.0)[row] * 1e-6 * since
    own = np.hypot(numbers(place.clocks["sigma_ns"], 0.0)[row], drifted)
    left = np.where(truths(place.clocks["aligned"])[row], 0, place.shift(rows.start)[chosen])
    apart = (members.max(left) - members.min(left))[members.group_ids].astype(np.float64)
    most = np.zeros(len(members))
    np.maximum.at(most, members.group_ids, own)
    clock, lead = (numbers(place.clocks[c], NONE)[row] for c in ("clock", "aligned_with"))
    one_clock = _equal(members, clock)
    told = np.sqrt(own**2 + most[members.group_ids] ** 2 + apart**2)
    sigma[chosen] = np.where(one_clock, 0.0, told)
    comparable = members.min((place.known[chosen] & (lead != NONE)).astype(np.int64)) > 0
    known[chosen] = comparable[members.group_ids] & _equal(members, lead)
    return np.rint(sigma).astype(np.int64), known


def _equal(members: Groups, values: Ints) -> Mask:
    """Rows whose group has one value only."""
    same: Mask = (members.min(values) == members.max(values))[members.group_ids]
    return same


def _hosts(ranks: pa.Table) -> dict[int, str]:
    pairs = zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True)
    return {rank: host for rank, host in pairs if rank is not None and host}


def _ends(rows: CollectiveRows, match: Ints, ranks: Ints) -> Ends:
    use = (match != NONE) & rows.timed & (rows.rank >= 0) & rows.is_type(*SYNCHRONISING)
    chosen = np.flatnonzero(use)
    several = Groups.by_keys(match[chosen])
    chosen = chosen[(several.count > 1)[several.group_ids]]
    process = np.searchsorted(ranks, rows.rank[chosen])
    which = Groups.by_keys(match[chosen]).group_ids
    order = np.lexsort((process, which))
    chosen = chosen[order]
    return Ends(which[order], process[order], rows.start[chosen], rows.end[chosen], len(ranks))


def _span(ends: Ends, found: Fit) -> Floats:
    """How long the recordings of each clock's component last together, in ns."""
    length = np.zeros(len(found.zero))
    if len(ends.count):
        times = found.times(ends, ends.end) - found.middle[found.clock[ends.process]]
        np.maximum.at(length, found.lead[found.clock[ends.process]], 2 * np.abs(times))
    return length[found.lead]


def _shared_clocks(ends: Ends, found: Fit, hosts: list[str | None]) -> Ints:
    """The clock of each process, from a fit that gave each its own."""
    shift, _, drift = found.shifts()
    turn = drift * _span(ends, found) / 2  # by drift alone, at either end
    residual = _residual(ends, found)
    clock = np.arange(len(hosts))
    codes = {name: k for k, name in enumerate(dict.fromkeys(h for h in hosts if h))}
    host = np.array([codes.get(h or "", NONE) for h in hosts], np.int64)
    named = np.flatnonzero(host != NONE)
    compared = Groups.by_keys(np.column_stack([host[named], found.lead[named]]))
    apart = compared.max(shift[named]) - compared.min(shift[named]) + _width(compared, turn[named])
    widest = np.zeros(len(compared))
    np.maximum.at(widest, compared.group_ids, residual[named])
    agree = apart <= np.maximum(SIGNIFICANT * widest, _HOST_NS)
    disagreeing = np.unique(compared.keys[~agree, 0])
    for k in np.setdiff1d(np.unique(host[named]), disagreeing).tolist():  # a host each
        clock[host == k] = np.flatnonzero(host == k)[0]
    lead = NONE
    for k in np.flatnonzero(host == NONE).tolist():  # ranks in order, each compared with one
        near = min(SIGNIFICANT * max(residual[k], residual[lead]), _NEIGHBOURS_NS)
        off = abs(int(shift[k] - shift[lead])) + abs(turn[k] - turn[lead])
        if lead >= 0 and found.lead[k] == found.lead[lead] and off <= near:
            clock[k] = lead
        else:
            lead = k
    return np.unique(clock, return_inverse=True)[1].ravel()


def _width(groups: Groups, values: Floats) -> Floats:
    """Largest less smallest value of each group."""
    low, high = np.full(len(groups), np.inf), np.full(len(groups), -np.inf)
    np.minimum.at(low, groups.group_ids, values)
    np.maximum.at(high, groups.group_ids, values)
    width: Floats = high - low
    return width


def _residual(ends: Ends, found: Fit) -> Floats:
    """How far each process's ends are off the common end, root mean square."""
    if not len(ends.count):
        return np.zeros(ends.processes)
    weight = found.weight[ends.collective]
    squares = np.bincount(ends.process, weight * found.off_common(ends) ** 2, ends.processes)
    total = np.bincount(ends.process, weight, ends.processes)
    return np.sqrt(squares / np.maximum(total, 1e-30))


def _shortfall(ends: Ends, found: Fit) -> Floats:
    """By how much each end lies before the last start of its collective (0: it does not)."""
    if not len(ends.count):
        return np.empty(0)
    latest = np.maximum.reduceat(found.times(ends, ends.start), ends.first)
    late: Floats = latest[ends.collective] - found.times(ends, ends.end)
    return np.where(late > 0.5, late, 0.0)


def _pushed(ends: Ends, found: Fit) -> Fit:
    """The fit, moved so that nobody ends before the last one has begun."""
    if not len(ends.count):
        return found
    spread = found.spread(ends)
    trusted = spread <= SIGNIFICANT * max(float(np.median(spread)), FLOOR_NS)
    for _ in range(_PUSHES):
        late = np.where(trusted[ends.collective], _shortfall(ends, found), 0.0)
        if not late.any():
            break
        push = np.zeros(len(found.zero))
        np.maximum.at(push, found.clock[ends.process], late)
        found = replace(found, offset=found.offset + (push - np.median(push)) / 2)
    return found
