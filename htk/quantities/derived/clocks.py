"""Offsets between the clocks of ranks, from collectives that end everywhere at once.

Processes of one host share a clock; where hosts are not recorded, neighbouring ranks whose offsets
agree do. Clocks are compared over groups that overlap; groups that share no clock cannot be. Nobody
can end before the last one has begun: where the fit says so, it is moved until that holds. A set
of clocks is aligned where any of them is off by more than three standard deviations.
"""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    mark_valid,
    match_texts,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.schema import FLOAT64, INT32, INT64
from htk.base.schema.comm import COLLECTIVE_MATCHES, RANK_CLOCKS
from htk.quantities.derived.clock_ends import common_ends, with_ends_of_messages
from htk.quantities.derived.clock_fit import FLOOR_NS, Ends, Fit, fit_clocks
from htk.quantities.derived.clock_sigma import SIGNIFICANT, standard_errors
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.lateness import before_window, window_starts
from htk.quantities.derived.match import timed_columns
from htk.quantities.derived.match_reasons import INCOMPARABLE, LACKING
from htk.quantities.derived.recorded import recorded_hosts
from htk.quantities.derived.unrecorded import short_of_members, with_undetermined
from htk.quantities.derived.waits import NEVER, measure_waits, without_waits

_PUSHES = 50
_NEIGHBOURS_NS = 10_000  # ranks further apart than this are not taken to share a clock
_HOST_NS = 5_000  # processes of one host that are further apart than this do not share one


def rank_clocks(collectives: pa.Table, collective_matches: pa.Table, ranks: pa.Table) -> pa.Table:
    """Return offset, drift and residual of each rank that took part in anything."""
    profiled = match_texts(collectives["source"], "kineto".__eq__)
    if (
        profiled.any() and not profiled.all()
    ):  # other records may count ranks within a communicator, on other clocks
        kineto_rows = pa.array(profiled)
        collectives = collectives.filter(kineto_rows)
        collective_matches = collective_matches.filter(kineto_rows)
    rows = CollectiveRows(collectives)
    present = np.unique(rows.rank[rows.rank >= 0])
    match = read_numbers(collective_matches["match"], NONE)
    ends = common_ends(rows, match, present)
    fitted = fit_clocks(ends, np.arange(len(present)))
    host = recorded_hosts(ranks)
    shared = _shared_clocks(ends, fitted, [host.get(r) for r in present.tolist()])
    with_messages = with_ends_of_messages(rows, match, present, ends, shared)
    ends = with_messages or ends
    if with_messages is not None or len(np.unique(shared)) < len(shared):
        fitted = fit_clocks(ends, shared)
    return _build_clock_rows(ends, _push_fit(ends, fitted), present)


def _build_clock_rows(ends: Ends, fitted: Fit, ranks: Ints) -> pa.Table:
    """Return a row for each rank."""
    clock = fitted.clock
    clocks = len(fitted.zero)
    lowest = np.full(clocks, np.iinfo(np.int64).max)
    np.minimum.at(lowest, clock, ranks)
    offset, reference, drift = fitted.shifts()
    residual = _measure_residual(ends, fitted)
    errors = standard_errors(ends, fitted)
    sigma, drift_sigma = errors.offset, errors.drift
    limit = _find_limit(np.bincount(fitted.lead, minlength=clocks)[fitted.lead])
    off = np.abs(offset) > limit * errors.offset_from_lead
    off |= np.abs(drift) > limit * errors.drift_from_lead
    seen = np.bincount(ends.process, minlength=len(ranks))
    late = np.bincount(
        ends.process[_measure_shortfall(ends, fitted) > FLOOR_NS], minlength=len(ranks)
    )
    has_clock = (np.bincount(clock, seen, clocks) > 0)[clock]
    aligned = (np.bincount(fitted.lead, off, clocks) > 0)[fitted.lead]
    columns = [
        build_numbers(ranks, INT32),
        build_numbers(lowest[fitted.lead][clock], INT32, has_clock),
        build_numbers(offset[clock], INT64, has_clock),
        build_numbers(drift[clock] * 1e6, FLOAT64, has_clock),
        build_numbers(reference[clock], INT64, has_clock),
        build_numbers(residual, FLOAT64, seen > 0),
        build_numbers(seen, INT64),
        build_numbers(late, INT64),
        build_numbers(lowest[clock], INT32, has_clock),
        build_numbers(sigma[clock], FLOAT64, has_clock),
        build_numbers(drift_sigma[clock] * 1e6, FLOAT64, has_clock),
        build_booleans(aligned[clock] & has_clock),
    ]
    return pa.table(columns, schema=RANK_CLOCKS)


def _find_limit(clocks: Ints) -> Floats:
    """Return the standard deviations beyond which one clock of so many is off: as rare by chance
    for any of them as three are for one alone. Each has an offset and a drift."""
    chance = NormalDist().cdf(-SIGNIFICANT)
    tests = np.maximum(2 * (clocks - 1), 1)
    return np.array([-NormalDist().inv_cdf(chance / n) for n in tests.tolist()])


def aligned_matches(
    collectives: pa.Table,
    collective_matches: pa.Table,
    rank_clocks: pa.Table,
    rank_windows: pa.Table,
    ranks: pa.Table,
) -> pa.Table:
    """Return the matches, with what depends on clocks on one clock where it is needed."""
    rows = CollectiveRows(collectives)
    match = read_numbers(collective_matches["match"], NONE)
    shift = compute_corrections(rank_clocks, rows.rank, rows.start)
    start = rows.start + shift
    end = rows.end + shift
    began = window_starts(rows, rank_windows)
    recorded = np.where(began == NEVER, rows.start, began)
    began = np.where(
        began == NEVER, began, recorded + compute_corrections(rank_clocks, rows.rank, recorded)
    )
    before = before_window(rows, match, start, began)
    comparable = _Comparable(rank_clocks, rows, recorded_hosts(ranks))
    compared = np.where(comparable.matches(match), match, NONE)
    waited = measure_waits(rows, compared, start, end)
    waited = without_waits(waited, comparable.cut_off())
    short = short_of_members(rows, read_numbers(collective_matches["members_present"], 0), ranks)
    lacking = match_texts(collective_matches["reason"], LACKING.__eq__)
    waited = with_undetermined(rows, waited, lacking, short, ranks)
    columns = {name: collective_matches[name] for name in COLLECTIVE_MATCHES.names}
    columns |= timed_columns(rows, compared, waited, before, start, end)
    lost = ~waited.has_wait & mark_valid(collective_matches["wait_ns"])
    columns["reason"] = pc.if_else(pa.array(lost), INCOMPARABLE, collective_matches["reason"])
    columns["before_window"] = build_booleans(before)
    columns["clock_offset_ns"] = build_numbers(shift, INT64)
    sigma, has_sigma = _wait_sigma(rank_clocks, rows, match)
    columns["wait_ns_sigma"] = build_numbers(sigma, INT64, has_sigma & waited.has_wait)
    return build_table(COLLECTIVE_MATCHES, columns, rows.length)


class _Comparable:
    """Which calls' clocks can be compared: those of one host, and those that collectives or
    messages have in common."""

    def __init__(self, clocks: pa.Table, rows: CollectiveRows, host_of: dict[int, str]) -> None:
        self.rows = rows
        places = _ClockRows(clocks, rows.rank)
        lead = read_numbers(places.clocks["aligned_with"], NONE)[places.row]
        self.lead = np.where(places.has_clock, lead, NONE).astype(np.int64)
        self.nothing_compared = bool((self.lead == NONE).all())
        hosts = {host: code for code, host in enumerate(dict.fromkeys(host_of.values()))}
        code = {rank: hosts[host] for rank, host in host_of.items()}
        ranks, rank_of_row = np.unique(rows.rank, return_inverse=True)
        self.host = np.array([code.get(r, NONE) for r in ranks.tolist()], np.int64)[
            rank_of_row.ravel()
        ]

    def matches(self, match: Ints) -> Mask:
        """Return the calls whose match has clocks that can be compared."""
        comparable = np.ones(len(match), bool)
        chosen = np.flatnonzero(match != NONE)
        members = Groups.by_keys(match[chosen])
        host = self.host[chosen]
        lead = self.lead[chosen]
        unknown = (members.min(host) == NONE) & self.nothing_compared
        same = _mark_equal(members, host) & (host != NONE)
        same |= _mark_equal(members, lead) & (lead != NONE)
        comparable[chosen] = same | unknown[members.group_ids]
        return comparable

    def cut_off(self) -> Ints:
        """Return the calls some of whose messages go to clocks that cannot be compared."""
        met = self.rows.meetings
        ends = [
            np.stack([column[met.call], column[met.other]]) for column in (self.host, self.lead)
        ]
        host, lead = ends
        same = (host[0] == host[1]) & (host[0] != NONE)
        same |= (lead[0] == lead[1]) & (lead[0] != NONE)
        unknown = (host.min(axis=0) == NONE) & self.nothing_compared
        return np.unique(met.call[~(same | unknown)])


def compute_corrections(clocks: pa.Table, rank: Ints, time: Ints) -> Ints:
    """Return what to add to times of ranks, in ns, so that they are on one clock; 0 where the
    ranks' own clocks agree, and where it is unknown."""
    aligned = read_booleans(clocks["aligned"])
    if not aligned.any():
        return np.zeros(len(time), np.int64)
    places = _ClockRows(clocks, rank)
    return np.where(places.has_clock & aligned[places.row], places.shift(time), 0)


def recorded_times(clocks: pa.Table, rank: Ints, aligned: Ints) -> Ints:
    """Return what the ranks' own clocks showed at times on one clock: without corrections."""
    is_aligned = read_booleans(clocks["aligned"])
    if not is_aligned.any():
        return aligned
    places = _ClockRows(clocks, rank)
    has_fit = places.has_clock & is_aligned[places.row]
    return np.where(has_fit, places.recorded(aligned), aligned)


class _ClockRows:
    """The row of the clocks' table that tells of each rank."""

    def __init__(self, clocks: pa.Table, rank: Ints) -> None:
        ranks = read_numbers(clocks["rank"])
        if not len(ranks):
            ranks = np.full(1, NONE)
            clocks = pa.Table.from_pylist([{"rank": NONE}], schema=RANK_CLOCKS)
        self.clocks = clocks
        self.row = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
        self.has_clock: Mask = (ranks[self.row] == rank) & (rank >= 0)

    def shift(self, time: Ints) -> Ints:
        """Return what the fit adds to a time, whether or not that is needed."""
        since = time - read_numbers(self.clocks["reference_ns"])[self.row]
        drift = read_numbers(self.clocks["drift_ppm"])[self.row] * 1e-6
        offset = read_numbers(self.clocks["offset_ns"])[self.row]
        return np.asarray(offset + np.rint(drift * since).astype(np.int64))

    def recorded(self, aligned: Ints) -> Ints:
        """Return the time to which the fit adds what makes this one of it."""
        reference = read_numbers(self.clocks["reference_ns"])[self.row]
        offset = read_numbers(self.clocks["offset_ns"])[self.row]
        drift = read_numbers(self.clocks["drift_ppm"])[self.row] * 1e-6
        since = aligned - offset - reference
        return np.asarray(reference + since - np.rint(since * drift / (1 + drift)).astype(np.int64))


def _wait_sigma(clocks: pa.Table, rows: CollectiveRows, match: Ints) -> tuple[Ints, Mask]:
    """Return the standard deviation, in ns, that clocks leave to each wait, and where it is known.

    It is that of the rank's clock and of the least certain one of the others; where clocks are left
    as recorded, what the fit says that they are off comes on top. One clock leaves none.
    """
    places = _ClockRows(clocks, rows.rank)
    sigma = np.zeros(rows.length)
    has_sigma = np.zeros(rows.length, bool)
    chosen = np.flatnonzero(match != NONE)
    if not len(chosen):
        return sigma.astype(np.int64), has_sigma
    members = Groups.by_keys(match[chosen])
    row = places.row[chosen]
    since = rows.start[chosen] - read_numbers(places.clocks["reference_ns"])[row]
    drifted = read_numbers(places.clocks["drift_ppm_sigma"], 0.0)[row] * 1e-6 * since
    own = np.hypot(read_numbers(places.clocks["offset_ns_sigma"], 0.0)[row], drifted)
    left = np.where(
        read_booleans(places.clocks["aligned"])[row], 0, places.shift(rows.start)[chosen]
    )
    apart = (members.max(left) - members.min(left))[members.group_ids].astype(np.float64)
    most = np.zeros(len(members))
    np.maximum.at(most, members.group_ids, own)
    clock = read_numbers(places.clocks["clock"], NONE)[row]
    lead = read_numbers(places.clocks["aligned_with"], NONE)[row]
    one_clock = _mark_equal(members, clock)
    combined = np.sqrt(own**2 + most[members.group_ids] ** 2 + apart**2)
    sigma[chosen] = np.where(one_clock, 0.0, combined)
    comparable = members.min((places.has_clock[chosen] & (lead != NONE)).astype(np.int64)) > 0
    has_sigma[chosen] = comparable[members.group_ids] & _mark_equal(members, lead)
    return np.rint(sigma).astype(np.int64), has_sigma


def _mark_equal(members: Groups, values: Ints) -> Mask:
    """Return the rows whose group has one value only."""
    same: Mask = (members.min(values) == members.max(values))[members.group_ids]
    return same


def _measure_span(ends: Ends, fitted: Fit) -> Floats:
    """Return how long the recordings of each clock's component last together, in ns."""
    length = np.zeros(len(fitted.zero))
    if len(ends.count):
        times = fitted.times(ends, ends.end) - fitted.middle[fitted.clock[ends.process]]
        np.maximum.at(length, fitted.lead[fitted.clock[ends.process]], 2 * np.abs(times))
    return length[fitted.lead]


def _shared_clocks(ends: Ends, fitted: Fit, hosts: list[str | None]) -> Ints:
    """Return the clock of each process, from a fit that gave each its own."""
    shift, _, drift = fitted.shifts()
    turn = drift * _measure_span(ends, fitted) / 2  # by drift alone, at either end
    residual = _measure_residual(ends, fitted)
    clock = np.arange(len(hosts))
    codes = {name: k for k, name in enumerate(dict.fromkeys(h for h in hosts if h))}
    host = np.array([codes.get(h or "", NONE) for h in hosts], np.int64)
    named = np.flatnonzero(host != NONE)
    compared = Groups.by_keys([host[named], fitted.lead[named]])
    apart = (
        compared.max(shift[named])
        - compared.min(shift[named])
        + _measure_width(compared, turn[named])
    )
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
        if lead >= 0 and fitted.lead[k] == fitted.lead[lead] and off <= near:
            clock[k] = lead
        else:
            lead = k
    return np.unique(clock, return_inverse=True)[1].ravel()


def _measure_width(groups: Groups, values: Floats) -> Floats:
    """Return the largest less the smallest value of each group."""
    low = np.full(len(groups), np.inf)
    high = np.full(len(groups), -np.inf)
    np.minimum.at(low, groups.group_ids, values)
    np.maximum.at(high, groups.group_ids, values)
    width: Floats = high - low
    return width


def _measure_residual(ends: Ends, fitted: Fit) -> Floats:
    """Return how far each process's ends are off the common end, root mean square."""
    if not len(ends.count):
        return np.zeros(ends.processes)
    weight = fitted.weight[ends.collective]
    squares = np.bincount(ends.process, weight * fitted.off_common(ends) ** 2, ends.processes)
    total = np.bincount(ends.process, weight, ends.processes)
    return np.sqrt(squares / np.maximum(total, 1e-30))


def _measure_shortfall(ends: Ends, fitted: Fit) -> Floats:
    """Return by how many ns each end precedes its collective's last start (0: it does not)."""
    if not len(ends.count):
        return np.empty(0)
    latest = np.maximum.reduceat(fitted.times(ends, ends.start), ends.first)
    late: Floats = latest[ends.collective] - fitted.times(ends, ends.end)
    return np.where(late > 0.5, late, 0.0)


def _push_fit(ends: Ends, fitted: Fit) -> Fit:
    """Return the fit, moved so that nobody ends before the last one has begun."""
    if not len(ends.count):
        return fitted
    spread = fitted.spread(ends)
    trusted = spread <= SIGNIFICANT * max(float(np.median(spread)), FLOOR_NS)
    for _ in range(_PUSHES):
        late = np.where(trusted[ends.collective], _measure_shortfall(ends, fitted), 0.0)
        if not late.any():
            break
        push = np.zeros(len(fitted.zero))
        np.maximum.at(push, fitted.clock[ends.process], late)
        fitted = replace(fitted, offset=fitted.offset + (push - np.median(push)) / 2)
    return fitted
