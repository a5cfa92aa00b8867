"""Groups of calls in the watchdog's lines: which group a line without a name belongs to.

The line that says which call timed out does not name its group; another does, and is often cut
where the process is killed. Calls of one group have one number, type and size on all its ranks:
so what another rank's lines name is taken over, and marked as guessed.
"""

import json
from collections import defaultdict
from typing import Any

from htk.base.mappings import Fields

Rows = list[Fields]
_UNKNOWN_TIME = 1 << 62


def name_groups(calls: Rows) -> None:
    """Name the group of each call of the watchdog that its own lines do not name.

    Calls that no named one resembles are put together by their number: which group they are of
    stays open, and calls of other numbers may be of another one.
    """
    named = [call for call in calls if call["group"] is not None]
    unnamed: dict[int | None, Rows] = defaultdict(list)
    for call in calls:
        if call["group"] is not None:
            continue
        like = _named_like(call, named)
        if like is None:
            unnamed[call["seq"]].append(call)
        else:
            facts = {key: like[key] for key in ("group", "group_desc", "group_ranks")}
            call |= facts | {"group_is_guessed": True}
    for alike in unnamed.values():
        ranks = sorted({call["rank"] for call in alike})
        for call in alike:
            call["group_ranks"] = json.dumps(ranks, separators=(",", ":"))
            call["group_is_guessed"] = True


def _named_like(call: Fields, named: Rows) -> Fields | None:
    """Return a call of equal number whose group this one's must be; None: none, or several."""
    same_number = [other for other in named if other["seq"] == call["seq"]]
    own_groups = {other["group"] for other in same_number if other["rank"] == call["rank"]}
    fitting = [
        other
        for other in same_number
        if other["group"] not in own_groups
        and other["seq_kind"] == call["seq_kind"]
        and _can_share_a_group(call, other)
    ]
    alike = [other for other in fitting if _describe_operation(other) == _describe_operation(call)]
    groups = {other["group"]: other for other in alike or fitting}
    return next(iter(groups.values())) if len(groups) == 1 else None


def _describe_operation(call: Fields) -> tuple[Any, ...]:
    return call["type"], call["in_elements"], call["out_elements"], call["in_shapes"]


def _can_share_a_group(call: Fields, other: Fields) -> bool:
    """Return whether two calls can be of one group: its ranks have a place each.

    In a group of all ranks, that place is the rank.
    """
    places = [row["comm_rank"] for row in (call, other)]
    if None in places:
        return True
    of_all_ranks = other["comm_rank"] == other["rank"] and other["group_desc"] == "default_pg"
    is_placed = call["comm_rank"] == call["rank"] or not of_all_ranks
    return is_placed and (places[0] != places[1] or call["rank"] == other["rank"])


def oldest_first(calls: Rows) -> Rows:
    """Return the watchdog's calls as their ranks made them: the oldest open one is what blocks.

    Within a group their numbers tell; groups are told apart by when their first was enqueued.
    """
    begun: dict[tuple[int, Any], int] = {}
    for position, call in enumerate(calls):
        lane = call["rank"], call["group"]
        enqueued = call["enqueue_ns"]
        time = enqueued if enqueued is not None else _UNKNOWN_TIME + position
        begun[lane] = min(begun.get(lane, time), time)
    return sorted(calls, key=lambda c: (c["rank"], begun[c["rank"], c["group"]], c["seq"] or 0))
