"""Rows of flight recorders and watchdogs, with their groups and states made whole."""

import json
from collections import defaultdict
from functools import cache

import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, match_texts
from htk.base.core.stated_counts import RANKS, RankLists
from htk.base.mappings import Facts, Fields
from htk.quantities.measures.call_history import ABORTED, RECORDER, WATCHDOG, GroupId, group_id
from htk.quantities.measures.watchdog_groups import name_groups, oldest_first

CALL_COLUMNS = (
    "rank",
    "event",
    "group",
    "group_desc",
    "group_ranks",
    "seq",
    "seq_kind",
    "type",
    "raw_name",
    "peer",
    "comm_rank",
    "dtype",
    "out_dtype",
    "in_shapes",
    "out_shapes",
    "in_elements",
    "out_elements",
    "coalesced",
    "state",
    "retired",
    "library",
    "enqueue_ns",
    "end_ns",
    "timeout_ns",
    "frames",
    "cycle",
    "source",
)
STATUS_COLUMNS = (
    "rank",
    "cycle",
    "source",
    "group",
    "group_desc",
    "group_ranks",
    "last_enqueued",
    "last_completed",
)
_NCCL_TIMEOUT_NS = 600 * 10**9  # where none is recorded


def watchdog_as_recorder(
    records: list[Fields], states: list[Fields]
) -> tuple[list[Fields], list[Fields], list[Facts]]:
    """Take what the watchdog says for what a recorder would.

    It tells of elements, not of shapes, and only of the last calls. It does not tell the peer of a
    message; messages have a count of their own, but share the group's counters, which then say
    nothing.
    """
    watched = [r for r in records if r["source"] == WATCHDOG]
    lone = [r for r in watched if r["type"] in ("send", "recv")]
    unsure = {(r["rank"], r["group"]) for r in lone}
    calls = [r for r in watched if r["type"] not in ("send", "recv")]
    name_groups(calls)
    for row in calls:
        row["event"] = (row["event"] or 0) + 1  # what was before is not told
        for side in ("in", "out"):
            count = row[f"{side}_elements"]
            if row[f"{side}_shapes"] is None and count is not None:
                row[f"{side}_shapes"] = f"[[{count}]]"
    kept = [r for r in records if r["source"] != WATCHDOG] + oldest_first(calls)
    for row in states:
        if row["source"] == WATCHDOG and (row["rank"], row["group"]) in unsure:
            row["last_enqueued"] = row["last_completed"] = None
    return kept, states, [*lone]


def enqueued_and_completed(records: list[Fields]) -> dict[tuple[int, GroupId], int]:
    """Return when each rank enqueued the last of its completed calls of each group, in ns."""
    latest: dict[tuple[int, GroupId], int] = {}
    for row in records:
        if row["state"] == "completed" and row["enqueue_ns"] is not None:
            key = (row["rank"], group_id(row))
            latest[key] = max(latest.get(key, 0), row["enqueue_ns"])
    return latest


def enqueued_by_all(records: list[Fields], states: list[Fields]) -> dict[GroupId, int]:
    """Return the last call of each group to which all its ranks that left a dump have come."""
    enqueued: dict[GroupId, dict[int, int]] = defaultdict(dict)
    calls = [(row, row["seq"]) for row in records if row["seq_kind"] != "p2p"]
    for row, number in [*calls, *((row, row["last_enqueued"]) for row in states)]:
        of_group = enqueued[group_id(row)]
        of_group[row["rank"]] = max(of_group.get(row["rank"], 0), number or 0)
    dumped = {row["rank"] for row in [*records, *states]}
    return {
        group: min(of_group.get(rank, 0) for rank in {*of_group, *dumped.intersection(group.ranks)})
        for group, of_group in enqueued.items()
    }


def call_state(row: Facts, status: Facts, alive_ns: int, common: int) -> str:
    """Return what became of a call, whichever way its backend says so.

    NCCL retires what timed out too, and calls it completed once the communicator is aborted. In a
    communicator that completed what was enqueued later, at `alive_ns`, a slow call was only slow.
    Other backends count and retire what timed out as completed: it is not, unless all ranks came
    to it (`common`: the last call to which they did).
    """
    nccl = row["library"] in ("nccl", None)
    limit = row["timeout_ns"] or _NCCL_TIMEOUT_NS
    done = status.get("last_completed")
    if row["state"] == "completed":
        times = row["enqueue_ns"], row["end_ns"]
        aged = nccl and None not in times and times[1] - times[0] >= limit
        return ABORTED if aged and alive_ns <= times[1] else "completed"
    if row["seq_kind"] != "p2p" and not nccl and (row["seq"] or 0) > common:
        return row["state"] or "scheduled"
    if row["seq_kind"] != "p2p" and None not in (done, row["seq"]) and row["seq"] <= done:
        return "completed"
    if row["retired"] and not nccl:
        return "completed"
    return row["state"] or "scheduled"


def resolve_groups(
    records: list[Fields], states: list[Fields], world_size: int | None
) -> tuple[set[GroupId], set[GroupId]]:
    """Fill in the members of groups that a dump does not know.

    Another dump knows them, or they are the ranks that used the group. Return the groups that are
    only inferred so, and of these the groups of all ranks of a job whose size nothing tells: they
    may have ranks above the highest that spoke.
    """
    rows = [*records, *states]
    recorded: dict[str, set[str]] = defaultdict(set)
    users: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        users[row["group"] or ""].add(row["rank"])
        if row["group_ranks"]:
            recorded[row["group"] or ""].add(row["group_ranks"])
    highest = max((row["rank"] for row in rows), default=-1)
    counted = world_size is not None and highest < world_size and RANKS.believes(world_size)
    size = world_size if counted and world_size is not None else highest + 1
    everyone = RankLists().text(0, size, 1)
    members = cache(lambda listed: frozenset(json.loads(listed)))
    listed_users = cache(lambda name: json.dumps(sorted(users[name]), separators=(",", ":")))
    inferred = {group_id(row) for row in rows if row.get("group_is_guessed") and not row["group"]}
    open_ended = set()
    for row in rows:
        if row["group_ranks"]:
            continue
        name = row["group"] or ""
        fitting = [listed for listed in recorded[name] if row["rank"] in members(listed)]
        if len(fitting) == 1:
            row["group_ranks"] = fitting[0]
        elif not recorded[name]:
            row["group_ranks"] = (_of_all_ranks(row) and everyone) or listed_users(name)
            if not (counted and _of_all_ranks(row)):
                inferred.add(group_id(row))
            if not counted and _of_all_ranks(row):
                open_ended.add(group_id(row))
    return inferred, open_ended


def _of_all_ranks(row: Facts) -> bool:
    """Return whether it is the default group, as the watchdog names it."""
    default = row["group_desc"] == "default_pg" or (row["group"] == "0" and not row["group_desc"])
    return row["source"] == WATCHDOG and default


def recorder_rows(table: pa.Table, columns: tuple[str, ...]) -> list[Fields]:
    """Return the rows of flight recorders, each text made once."""
    ours = match_texts(table["source"], (RECORDER, WATCHDOG).__contains__) & mark_valid(
        table["rank"]
    )
    table = table.select(columns).filter(pa.array(ours))
    values = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            codes, texts = codes_of(column)
            listed = [*texts.to_pylist(), None]
            values.append([listed[code] for code in codes.tolist()])
        else:
            values.append(column.to_pylist())
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
