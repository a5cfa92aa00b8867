"""Wait and transfer: what part of a collective a rank spent waiting for those it depends on.

S = the latest start over the ranks that a rank depends on: all of them in a synchronising
collective, the root in broadcast and scatter, the peer of a message, all that the messages of a
batch go to or come from; in reduce and gather only the root depends on others.
wait = clip(S - start, 0, duration), transfer = duration - wait.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.quantities.derived.collective_rows import CollectiveRows

_PAIR = 2  # calls of which each meets the other alone
NEVER = np.iinfo(np.int64).min  # no start: aligned times of a trace that counts from 0 may be < 0


@dataclass(frozen=True)
class Waits:
    has_wait: Mask
    last_dependency_start: Ints  # S
    wait: Ints
    transfer: Ints
    undetermined: Ints  # wait or transfer: members that were not recorded would tell
    span: Ints  # last end less last start over the members: the time that bandwidth counts
    last_rank: Ints  # who started last; NONE: unknown


def measure_waits(rows: CollectiveRows, match: Ints, start: Ints, end: Ints) -> Waits:
    """Wait and transfer of matched, timed rows, from times on one clock."""
    length = len(match)
    common = np.full(length, NEVER, np.int64)
    span = fill_none(length)
    last = fill_none(length)
    chosen = np.flatnonzero((match != NONE) & rows.timed)
    members = Groups.by_keys(match[chosen])
    latest = members.max(start[chosen])[members.group_ids]
    common[chosen] = _find_dependency_starts(rows, chosen, members, latest, start)
    span[chosen] = members.max(end[chosen])[members.group_ids] - latest
    last[chosen] = _last_rank(rows.rank[chosen], members, start[chosen])
    has_wait = common != NEVER
    has_wait[chosen] &= (members.count > 1)[members.group_ids]
    calls, latest, last_of_calls = _of_messages(rows, start)
    has_wait[calls] = True
    common[calls] = latest
    last[calls] = last_of_calls
    alone = calls[members_of(match, calls) != _PAIR]  # others begin when these do not
    span[alone] = end[alone] - common[alone]
    common = np.where(has_wait, common, start)
    duration = end - start
    wait = np.where(has_wait, np.clip(common - start, 0, np.maximum(duration, 0)), 0)
    rest = np.where(has_wait, duration - wait, 0)
    return Waits(has_wait, common, wait, rest, np.zeros(length, np.int64), span, last)


def without_waits(waited: Waits, calls: Ints) -> Waits:
    """Return the waits, unknown for some calls."""
    has_wait = waited.has_wait.copy()
    span = waited.span.copy()
    last = waited.last_rank.copy()
    has_wait[calls] = False
    span[calls] = NONE
    last[calls] = NONE
    return replace(waited, has_wait=has_wait, span=span, last_rank=last)


def _of_messages(rows: CollectiveRows, start: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the timed calls that exchange several messages, the latest start of each and of those
    that it meets, and the rank that began last of them."""
    met = rows.meetings
    timed = rows.timed[met.call] & rows.timed[met.other]
    call = met.call[timed]
    other = met.other[timed]
    pairs = Groups.by_keys(call)
    calls = pairs.keys.ravel()
    latest = np.maximum(pairs.max(start[other]), start[calls])
    near = Groups.by_keys(np.append(call, calls))
    members = np.append(other, calls)
    last = _last_rank(rows.rank[members], near, start[members])
    return calls, latest, last[len(call) :]


def members_of(match: Ints, rows: Ints) -> Ints:
    """Return how many rows there are of the match of each of some rows (0: it has none)."""
    count = np.append(np.bincount(match[match != NONE]), 0)
    return np.where(match[rows] == NONE, 0, count[match[rows]])


def _find_dependency_starts(
    rows: CollectiveRows, chosen: Ints, members: Groups, latest: Ints, start: Ints
) -> Ints:
    """S of each chosen row; NEVER where the rank that it depends on is unrecorded."""
    own = start[chosen]
    own_rank = rows.rank[chosen]
    root = global_root(rows)[chosen]
    is_root = (root == own_rank) & (root >= 0)
    of_root = members.max(np.where(is_root, own, NEVER))[members.group_ids]
    from_root = rows.is_type("broadcast", "scatter")[chosen]
    to_root = rows.is_type("reduce", "gather")[chosen]
    dependency = latest
    dependency = np.where(from_root, np.where(is_root, own, of_root), dependency)
    dependency = np.where(
        to_root, np.where(root < 0, NEVER, np.where(is_root, latest, own)), dependency
    )
    message = rows.is_type("send", "recv")[chosen]
    other = members.sum(own)[members.group_ids] - own  # of two
    pair = (members.count == 2)[members.group_ids]
    return np.where(message, np.where(pair, other, NEVER), dependency)


def global_root(rows: CollectiveRows) -> Ints:
    """Global rank of each row's root (NONE: unknown). Roots are recorded as ranks of the group."""
    codes, groups = rows.group_ranks
    root = rows.root.copy()
    for code, ranks in enumerate(groups):  # a few groups
        in_group = (codes == code) & (root >= 0)
        lookup = np.array([*ranks, NONE], np.int64)
        root[in_group] = lookup[np.minimum(rows.root[in_group], len(ranks))]
    unlisted = (codes == NONE) & (root >= 0)
    everyone = unlisted & (rows.group_size > rows.highest_rank)  # everyone is in it
    root[unlisted & ~everyone] = NONE
    return root


def _last_rank(rank: Ints, members: Groups, start: Ints) -> Ints:
    """Return who started last in each match; of several the lowest rank."""
    order = order_by(members.group_ids, start, -rank)
    ends = np.cumsum(members.count) - 1
    return rank[order][ends][members.group_ids] if len(rank) else rank
