"""Rows of `collectives`: one for each record of a dump."""

import re
from typing import Any

from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type, dtype_bytes
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    text_or_none,
    whole_number,
)
from htk.parsers.common.recorder_dump import NAME, list_of, text_of
from htk.parsers.common.recorder_groups import ProcessGroups

_MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 1 << 14, 64, 1000  # of one record
_SIMPLE = {str, int}
_FURTHEST_NS = 1 << 61
_ABSENT_TIMES = (None, 0)  # JSON dumps write 0


def _read_time(entry: Facts, key: str, unit_ns: int = 1) -> int | None:
    """Return a time in ns. Raises for one that no clock shows."""
    value = whole_number(entry.get(key))
    if value is not None and abs(value) * unit_ns >= _FURTHEST_NS:
        raise ValueError(f"{key} is {value}")
    return None if value is None else value * unit_ns


def rows_of(entries: list[Fields], groups: ProcessGroups, issues: Issues) -> list[Fields]:
    rows = []
    kept = []
    for entry in entries:  # some thousand at most
        try:
            rows.append(_build_record_row(entry, groups))
            kept.append(entry)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            issues.add("broken_entry", f"record {entry.get('record_id')}: {error}")
    _close_groups(rows, kept)
    return rows


_PEER = re.compile(r"(?<!\d)(\d{1,9})\s{0,9}(->|<-)\s{0,9}(\d{1,9})")


def _build_record_row(entry: Facts, groups: ProcessGroups) -> Fields:
    name = entry["profiling_name"]
    group = groups.list_fields(entry)
    is_p2p = bool(entry.get("is_p2p")) or _PEER.search(name) is not None
    seq = entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))
    row = {key: group[key] for key in ("group", "group_desc", "group_ranks", "group_size")}
    return row | {
        "source": NAME,
        "event": whole_number(entry.get("record_id")),
        "seq": whole_number(seq),
        "seq_kind": "p2p" if is_p2p else "collective",
        "type": collective_type(name),
        "raw_name": name,
        "library": name.partition(":")[0] if ":" in name else None,
        **_build_tensor_columns(entry),
        **_parse_peers(name, group["ranks"]),
        "enqueue_ns": _read_created(entry),
        "start_ns": _read_noticed(entry, "started"),
        "end_ns": _read_noticed(entry, "completed"),
        "duration_ns": _read_duration(entry.get("duration_ms")),
        "timing": "watchdog",
        "state": text_or_none(entry.get("state")),
        "timeout_ns": _read_timeout(entry),
        "retired": entry.get("retired") if isinstance(entry.get("retired"), bool) else None,
        "frames": _spell_frames(entry.get("frames")),
    }


def _read_duration(millis: Any) -> int | None:
    is_number = isinstance(millis, int | float) and not isinstance(millis, bool)
    return round(millis * 1e6) if is_number and abs(millis) < 1e12 else None


def _build_tensor_columns(entry: Facts) -> Fields:
    columns: Fields = {}
    for side, prefix in (("input", "in"), ("output", "out")):
        shapes = _read_shapes(entry.get(f"{side}_sizes"))
        dtypes = [text_of(d) or "" for d in list_of(entry.get(f"{side}_dtypes"))[:_MOST_TENSORS]]
        counts = [_multiply_sizes(s) for s in shapes]
        columns[f"{prefix}_shapes"] = compact_json(shapes)
        columns["dtype" if side == "input" else "out_dtype"] = ",".join(sorted(set(dtypes))) or None
        if shapes:
            columns[f"{prefix}_elements"] = sum(counts)
            widths = [dtype_bytes(d) for d in dtypes]
            if len(widths) == len(counts) and None not in widths:
                sizes = (n * (w or 0) for n, w in zip(counts, widths, strict=True))
                columns[f"{prefix}_bytes"] = sum(sizes)
    return columns


def _read_shapes(value: Any) -> list[list[int]]:
    """Return the sizes of each tensor. Raises for what is none."""
    shapes = [list(s) for s in list_of(value) if isinstance(s, list | tuple)]
    if len(shapes) > _MOST_TENSORS:
        raise ValueError(f"sizes of {len(shapes):,} tensors, more than a call has")
    for shape in shapes:
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError("sizes of more dimensions than a tensor can have")
        for size in shape:
            if type(size) is not int or not -1 << 62 < size < 1 << 62:
                raise ValueError("sizes that are not whole numbers")
    return shapes


def _multiply_sizes(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= max(size, 0)
    return min(total, 2**62)


def _parse_peers(name: str, ranks: list[int] | None) -> Fields:
    """send 0->1 and recv 0<-1 name ranks of the group, one's own first."""
    match = _PEER.search(name)
    if match is None:
        return {}
    own = int(match[1])
    peer = int(match[3])
    return {"comm_rank": own, "peer": ranks[peer] if ranks and peer < len(ranks) else None}


def _read_created(entry: Facts) -> int | None:
    ns = _read_time(entry, "time_created_ns")
    return ns if ns is not None else _read_time(entry, "time_created_us", 1000)


def _read_noticed(entry: Facts, what: str) -> int | None:
    key = f"time_discovered_{what}_ns"
    return None if entry.get(key) in _ABSENT_TIMES else _read_time(entry, key)


def _read_timeout(entry: Facts) -> int | None:
    ms = whole_number(entry.get("timeout_ms"))
    return ms * 1_000_000 if ms is not None and 0 < ms < 2**41 else None


def _spell_frames(frames: Any) -> str | None:
    lines = []
    for frame in list_of(frames)[:_MOST_FRAMES]:
        if isinstance(frame, dict):
            parts: tuple[Any, ...] = tuple(map(frame.get, ("name", "filename", "line")))
            if not _SIMPLE.issuperset(map(type, parts)):
                parts = tuple(map(text_of, parts))
            lines.append("%.1000s (%.1000s:%s)" % parts)  # noqa: UP031  (bounds the lengths)
    return "\n".join(lines) or None


def _close_groups(rows: list[Fields], entries: list[Fields]) -> None:
    """Members of a coalesced group have no events of their own: the closing entry tells."""
    open_members: dict[tuple[Any, ...], list[Fields]] = {}
    for row, entry in zip(rows, entries, strict=True):  # in the order recorded
        key = (text_of(entry.get("pg_id")), row["seq_kind"], row["seq"])
        if not row["raw_name"].endswith("coalesced") or list_of(entry.get("input_sizes")):
            open_members.setdefault(key, []).append(row)
            continue
        for member in open_members.pop(key, []):
            member["coalesced"] = row["raw_name"]
            if row["state"] != member["state"]:
                member |= {
                    "state": row["state"],
                    "retired": row["retired"],
                    "inferred_columns": "state",
                }
