"""Process groups, and the lists in which a profile names ranks, splits and sequence numbers."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_texts, drop_fields, number_or_null
from htk.base.columns.types import NONE
from htk.base.core.stated_counts import RANK, RankLists
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import ranks_in_name
from htk.base.schema import INT32, TABLES
from htk.parsers.common.log_records import compact_json
from htk.parsers.kineto.metadata import Metadata, Rows, take_either, take_values, texts_at

_COLUMNS = drop_fields(TABLES["comm_groups"], "rank", "cycle")


def comm_groups(header: Facts) -> pa.Table:
    """Process groups, from distributedInfo. Nothing in it is trusted."""
    job = header.get("distributedInfo")
    listed = job.get("pg_config") if isinstance(job, dict) else None
    entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    rows = [_build_group(entry) for entry in entries]
    return pa.Table.from_pylist(rows, schema=_COLUMNS)


def _build_group(entry: Facts) -> Fields:
    ranks = entry.get("ranks")
    if isinstance(ranks, list) and _are_whole(ranks):
        listed: str | None = _spell_ranks(tuple(ranks))
    else:
        listed = listed_ranks(ranks) if isinstance(ranks, str) else None
    size = entry.get("pg_size")
    return {
        "source": "kineto",
        "group": _take_text(entry.get("pg_name")),
        "group_desc": _take_text(entry.get("pg_desc")),
        "group_ranks": listed,
        "group_size": size if _is_whole(size) and size > 0 else None,
        "backend": _take_text(entry.get("backend_config")),
    }


def _are_whole(values: list[Any]) -> TypeGuard[list[int]]:
    """Return whether all values are; a file of a large job lists all of its ranks."""
    are_integers = {*map(type, values)} <= {int}
    return are_integers and (not values or (_is_whole(min(values)) and _is_whole(max(values))))


@lru_cache(maxsize=1000)  # the files of a job list the same groups
def _spell_ranks(ranks: tuple[int, ...]) -> str:
    return compact_json(list(ranks))


def _is_whole(value: Any) -> TypeGuard[int]:
    """Return whether a value of JSON is a count or a rank; `true` is an int in Python alone."""
    return RANK.believes(value)


def _take_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


@lru_cache(maxsize=10_000)
def listed_ranks(listed: str) -> str | None:
    """Return a list of ranks in compact JSON; None where it was cut short ("[0, 1, ..., 63]")."""
    if "..." in listed:
        return None
    parts = [p.strip() for p in listed.strip("[] ").split(",") if p.strip()]
    is_complete = all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts)
    return compact_json([int(p) for p in parts]) if is_complete else None


def configured_ranks(groups: pa.Table) -> Callable[[str | None, int, str | None], str | None]:
    """Return a function that looks up the ranks of a group in the file's own list of groups: by
    name and size, and by as much of the ranks as a text that was cut short still shows."""
    named: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, size, ranks in zip(
        *(groups[c].to_pylist() for c in ("group", "group_size", "group_ranks")), strict=True
    ):
        if name is not None and ranks is not None and size == ranks.count(",") + 1:
            named[name, size].append(ranks)

    @cache
    def find_ranks(name: str | None, size: int, shown: str | None) -> str | None:
        fitting = {
            r for r in named.get((name or "", size), ()) if shown is None or _is_prefix_of(r, shown)
        }
        return fitting.pop() if len(fitting) == 1 else None

    return find_ranks


def _is_prefix_of(ranks: str, shown: str) -> bool:
    """Return whether a whole list may be what a text that was cut short shows."""
    first, _, last = shown.replace(" ", "").strip("[]").partition("...")
    return ranks[1:-1].startswith(first) and ranks[1:-1].endswith(last)


def groups_of_calls(
    source: Rows,
    of_record: Rows,
    facts: Metadata,
    groups: pa.Table,
    names: list[str | None],
    inferred: list[list[str]],
) -> dict[str, pa.Array]:
    """Return the process group of each collective. Where a file knows one group only, it is that
    one, unless the kernel's name states another number of ranks."""
    name = _first_of(
        take_values(facts.table["pg_name"], source), take_values(facts.table["pg_id_old"], source)
    )
    stated = np.array([ranks_in_name(name or "") for name in names], np.int64)
    size = take_either(facts, source, "group_size")
    size = np.where(size < 0, stated, size)
    ranks = texts_at(facts.table["pg_ranks"], source)
    start = take_either(facts, of_record, "rank_start")
    stride = take_either(facts, of_record, "rank_stride")
    members: list[str | None] = []
    configured = configured_ranks(groups)
    regular = RankLists()
    for row, listed in enumerate(ranks):  # a few distinct lists, cached
        found_ranks = listed_ranks(listed) if listed else None
        if found_ranks is None:
            found_ranks = configured(name[row], int(size[row]), listed)
        if found_ranks is None:
            found_ranks = regular.text(int(start[row]), int(size[row]), int(stride[row]))
            if found_ranks is not None:
                inferred[row].append("group_ranks")
        members.append(found_ranks)
    if groups.num_rows == 1:
        only = groups.to_pylist()[0]
        may_be_only = (source == NONE) & ((stated < 0) | (stated == (only["group_size"] or -1)))
        for row in np.flatnonzero(may_be_only).tolist():
            name[row] = only["group"]
            members[row] = only["group_ranks"]
            size[row] = only["group_size"] or -1
            inferred[row].append("group")
    return {
        "group": build_texts(name),
        "group_desc": take_values(facts.table["pg_desc"], source),
        "group_ranks": build_texts(members),
        "group_size": number_or_null(size, INT32),
    }


def _first_of(first: pa.Array, second: pa.Array) -> list[str | None]:
    pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
    return [a if a is not None else None if b is None else str(b) for a, b in pairs]


def parse_split_sizes(listed: str) -> str | None:
    """Return the elements to or from each peer; None where there is no list, or not all of it."""
    inner = listed.strip("[] ")
    parts = [p.strip() for p in inner.split(",")] if inner else []
    is_complete = bool(parts) and all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts)
    return compact_json([int(p) for p in parts]) if is_complete else None


_SEQ = re.compile(r"^\[?\(?(\d+), ?(?:True|False)")


@lru_cache(maxsize=100_000)
def seq_of(concrete: str) -> int:
    """Return the sequence number among an operator's values: "[7, False]"."""
    try:
        values = json.loads(concrete)
    except (ValueError, RecursionError):
        return -1
    for value in values[:2] if isinstance(values, list) else []:
        match = _SEQ.match(str(value))
        if match:
            return int(match[1]) if len(match[1]) < 19 else -1
    return -1


@lru_cache(maxsize=10_000)
def value_at(concrete: str | None, position: int) -> int:
    """Return a whole number among an operator's values (-1: none there)."""
    try:
        values = json.loads(concrete or "[]")
    except (ValueError, RecursionError):
        return -1
    literal = str(values[position]) if isinstance(values, list) and position < len(values) else ""
    return int(literal) if literal.isascii() and literal.isdigit() and len(literal) < 10 else -1
