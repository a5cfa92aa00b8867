"""Ranks that call process groups in another order than their counterparts.

Ranks in like places belong to groups of the same kinds (description, size, distance of members),
and run the same program. Where most call one kind of group and few another, the few took a wrong
turn, whoever waits for whom since.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from htk.quantities.measures.call_history import GroupId, Histories, RecordedCall

_FEWEST = 3  # ranks in like places, of which a majority can be told


class WrongTurn(NamedTuple):
    """The first call at which a few ranks leave the pattern of most."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    number: int  # of the call, counted over all groups of a rank
    call: RecordedCall
    expected: RecordedCall


Kind = tuple[str, int, int]


def wrong_turns(history: Histories) -> list[WrongTurn]:
    """Return where ranks call another kind of group than most ranks in like places, if they do."""
    alike: dict[frozenset[Kind], dict[int, list[RecordedCall]]] = defaultdict(dict)
    for rank in history.dumped:
        calls = [c for c in history.calls[rank] if c.call_site.pair is None]
        if calls and calls[0].record == 0:  # the ring has not lost the beginning
            alike[_list_call_kinds(history, rank)][rank] = calls
    turns = (_first_turn(history, members) for members in alike.values())
    return [turn for turn in turns if turn is not None]


def _list_call_kinds(history: Histories, rank: int) -> frozenset[Kind]:
    groups = {group for member, group in history.status if member == rank}
    groups |= {c.call_site.group for c in history.calls[rank]}
    return frozenset(group_kind(history, group) for group in groups)


def group_kind(history: Histories, group: GroupId) -> Kind:
    """Return what groups of ranks in like places have in common."""
    description = history.descriptions.get(group, "")
    distance = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 0
    return ("" if description == "undefined" else description, len(group.ranks), distance)


def _first_turn(history: Histories, calls: dict[int, list[RecordedCall]]) -> WrongTurn | None:
    if len(calls) < _FEWEST:
        return None
    for k in range(1, max(map(len, calls.values()))):  # a pattern needs a beginning in common
        kinds = {
            r: group_kind(history, c[k].call_site.group) for r, c in calls.items() if len(c) > k
        }
        ((usual, count), *rest) = Counter(kinds.values()).most_common()
        if not rest:
            continue
        if 2 * count <= len(calls):
            return None
        others = tuple(r for r, kind in kinds.items() if kind == usual)
        ranks = tuple(r for r, kind in kinds.items() if kind != usual)
        return WrongTurn(ranks, others, k + 1, calls[ranks[0]][k], calls[others[0]][k])
    return None
