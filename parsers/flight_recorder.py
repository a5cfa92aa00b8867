"""PyTorch Flight Recorder: the last collectives of one rank, dumped when a job hangs or on demand.

Written by c10d (ProcessGroupNCCL, later every backend) and torchcomms, as a pickle of plain
containers or as JSON; schemas 1.4 to 2.10 and newer minors. A dump names neither its rank nor its
host: only the file name does (`comm_lib_trace_rank_3`, `nccl_trace_rank_3`).

The pickle is read by an unpickler that knows no global. What a killed process left of one is
walked opcode by opcode, and the whole entries are kept. Not read: thread names, timeouts.

Times are when the host enqueued, and when its watchdog noticed start and end (every 100 ms or so).
"""

import io
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.names.collectives import collective_type, dtype_bytes
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_whole,
    said,
    salvaged_json,
    table_of,
    whole_number,
)
from htk.parsers.common.safe_pickle import PlainUnpickler, Refused, is_pickle, left_over

NAME = "flight_recorder"

_MAJORS = (1, 2)
_PICKLED = re.compile(rb"pg_config|profiling_name|comm_lib_version|pg_status")
_JSON = re.compile(rb'"(?:profiling_name|pg_status|comm_lib_version)"\s*:')
_PROFILE = re.compile(
    rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:'
)  # has pg_config too
_ABSENT_TIMES = (None, 0)  # JSON dumps write 0


def sniff(head: Head) -> bool:
    if is_pickle(head.data):
        return _PICKLED.search(head.data) is not None
    start = head.data.lstrip()[:1]
    if start not in (b"{", b"[") or _PROFILE.search(head.data):
        return False
    return _JSON.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    data = read_whole(source, issues, options.progress)
    dump = _loaded(data, source.name, issues)
    entries = [e for e in _list(dump.get("entries")) if _is_entry(e)]
    if lost := len(_list(dump.get("entries"))) - len(entries):
        issues.add("broken_entry", "an entry is no record of a collective", count=lost)
    version = str(dump.get("version", ""))
    if version and _major(version) not in _MAJORS:
        issues.add("unknown_version", f"schema {version}, read as the newest known (2.10)")
    groups = _Groups(dump, entries)
    rows = _rows(entries, groups, issues)
    tables = {
        "collectives": table_of("collectives", rows, of_one_rank=True),
        "comm_groups": table_of(
            "comm_groups", groups.rows(dump.get("pg_status")), of_one_rank=True
        ),
        "comm_notes": table_of("comm_notes", _states(dump), of_one_rank=True),
        "parse_issues": issues.table(),
    }
    return Parsed(tables, None, groups.world_size, _facts(dump, version, rows, issues))


# Reading


def _loaded(data: bytes, name: str, issues: Issues) -> Mapping[str, Any]:
    if data[:1] == b"\x80":
        dump = _unpickled(data, name, issues)
    else:
        dump = _decoded(data.decode("utf8", "replace"), name, issues)
    if isinstance(dump, list):  # as the oldest dumps were
        return {"entries": dump}
    if isinstance(dump, dict):
        return dump
    raise MalformedTrace(f"{name}: holds a {type(dump).__name__}, expected a flight recorder dump")


class _Unpickler(PlainUnpickler):
    """Knows the list marks of torch's pickler too."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and re.fullmatch(r"build_\w*list", name):
            return list
        if module == "torch.jit._pickle" and name == "restore_type_tag":
            return _untagged
        return super().find_class(module, name)


def _untagged(value: Any, _tag: Any) -> Any:
    return value


def _unpickled(data: bytes, name: str, issues: Issues) -> Any:
    try:
        return _Unpickler(io.BytesIO(data), encoding="utf-8", errors="replace").load()
    except Refused as refused:
        raise MalformedTrace(
            f"{name}: this pickle asks to import {refused}, which no flight recorder dump does; "
            "it was not run; do not trust the file"
        ) from None
    except Exception as error:  # a cut pickle may fail in any way; none of them is fatal
        dump = _salvaged(data)
        if not dump:
            raise MalformedTrace(
                f"{name}: cut or broken pickle without one whole entry ({error})"
            ) from None
        issues.add("truncated", f"the pickle is cut or broken ({error})", len(data))
        return dump


def _salvaged(data: bytes) -> dict[str, Any]:
    """What a cut pickle holds: its whole entries, and the members before them."""
    left = left_over(data)
    dump: dict[str, Any] = {}
    for key, value in itertools.pairwise(left):
        if key in ("version", "pg_config", "pg_status", "comm_lib_version", "nccl_version"):
            dump.setdefault(key, value)
    entries = [found for found in left if _is_entry(found)]
    for found in left:
        if isinstance(found, list):
            entries += [e for e in found if _is_entry(e)]
    if entries:
        dump["entries"] = entries
    return dump


def _decoded(text: str, name: str, issues: Issues) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        members = ("version", "comm_lib_version", "pg_config", "pg_status")
        dump = salvaged_json(text, "entries", members)
        dump["entries"] = [e for e in dump["entries"] if _is_entry(e)]
        if not dump["entries"]:
            raise MalformedTrace(f"{name}: cut or broken JSON ({error})") from None
        issues.add("truncated", f"the JSON is cut or broken ({error})", len(text))
        return dump


# Meaning


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("profiling_name"), str)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _major(version: str) -> int | None:
    return whole_number(version.partition(".")[0])


class _Groups:
    """The process groups of a dump. Schema 1 names them by number."""

    def __init__(self, dump: Mapping[str, Any], entries: list[dict[str, Any]]) -> None:
        config = dump.get("pg_config")
        self._known = {
            str(key): _group(str(key), value)
            for key, value in (config.items() if isinstance(config, dict) else ())
        }
        self._name_of = {str(e.get("pg_id")): _name_of_group(e) for e in entries}
        for entry in entries:
            name, description = _process_group(entry)
            self._known.setdefault(name, _group(name, {"desc": description}))

    def of(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return self._known[_name_of_group(entry)]

    @property
    def world_size(self) -> int | None:
        sizes = [
            g["group_size"] or 0
            for g in self._known.values()
            if g["group_desc"] == "default_pg" or g["group"] == "0"
        ]
        return max(sizes, default=0) or None

    def rows(self, status: Any) -> list[dict[str, Any]]:
        found = {name: dict(group) for name, group in self._known.items()}
        for key, state in status.items() if isinstance(status, dict) else ():
            name = self._name_of.get(str(key), str(key))
            if name in found and isinstance(state, dict):
                for step in ("enqueued", "started", "completed"):
                    found[name][f"last_{step}"] = whole_number(state.get(f"last_{step}_collective"))
        return list(found.values())


def _process_group(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    pair = entry.get("process_group")
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return str(pair[0]), said(pair[1])
    return str(entry.get("pg_id", "")), None


def _name_of_group(entry: Mapping[str, Any]) -> str:
    return _process_group(entry)[0]


def _group(name: str, value: Any) -> dict[str, Any]:
    known = value if isinstance(value, dict) else {"ranks": value}
    ranks = _ranks(known.get("ranks"))
    return {
        "source": NAME,
        "group": name,
        "group_desc": said(known.get("desc")),
        "group_ranks": None if ranks is None else compact_json(ranks),
        "group_size": None if ranks is None else len(ranks),
    }


def _ranks(value: Any) -> list[int] | None:
    """A list, or one printed as text: "[0, 1]"."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return None
    ranks = [whole_number(p) for p in parts]
    known = [r for r in ranks if r is not None and r >= 0]
    return known if known and len(known) == len(ranks) else None


def _rows(entries: list[dict[str, Any]], groups: _Groups, issues: Issues) -> list[dict[str, Any]]:
    rows, kept = [], []
    for entry in entries:  # some thousand at most
        try:
            rows.append(_row(entry, groups))
            kept.append(entry)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            issues.add("broken_entry", f"record {entry.get('record_id')}: {error}")
    _close_groups(rows, kept)
    return rows


_PEER = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


def _row(entry: Mapping[str, Any], groups: _Groups) -> dict[str, Any]:
    name = entry["profiling_name"]
    group = groups.of(entry)
    is_p2p = bool(entry.get("is_p2p")) or _PEER.search(name) is not None
    seq = entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))
    duration = entry.get("duration_ms")
    row = {key: group[key] for key in ("group", "group_desc", "group_ranks", "group_size")}
    return row | {
        "source": NAME,
        "event": whole_number(entry.get("record_id")),
        "seq": whole_number(seq),
        "seq_kind": "p2p" if is_p2p else "collective",
        "type": collective_type(name),
        "raw_name": name,
        "library": name.partition(":")[0] if ":" in name else None,
        **_tensors(entry),
        **_peers(name, group["group_ranks"]),
        "enqueue_ns": _created(entry),
        "start_ns": _noticed(entry, "started"),
        "end_ns": _noticed(entry, "completed"),
        "duration_ns": round(duration * 1e6) if isinstance(duration, int | float) else None,
        "timing": "watchdog",
        "state": said(entry.get("state")),
        "retired": entry.get("retired") if isinstance(entry.get("retired"), bool) else None,
        "frames": _frames(entry.get("frames")),
    }


def _tensors(entry: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for side, prefix in (("input", "in"), ("output", "out")):
        shapes = [s for s in _list(entry.get(f"{side}_sizes")) if isinstance(s, list | tuple)]
        dtypes = [str(d) for d in _list(entry.get(f"{side}_dtypes"))]
        counts = [_product(s) for s in shapes]
        made[f"{prefix}_shapes"] = compact_json([list(s) for s in shapes])
        made["dtype" if side == "input" else "out_dtype"] = ",".join(sorted(set(dtypes))) or None
        if shapes:
            made[f"{prefix}_elements"] = sum(counts)
            widths = [dtype_bytes(d) for d in dtypes]
            if len(widths) == len(counts) and None not in widths:
                sizes = (n * (w or 0) for n, w in zip(counts, widths, strict=True))
                made[f"{prefix}_bytes"] = sum(sizes)
    return made


def _product(shape: list[Any] | tuple[Any, ...]) -> int:
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) and size >= 0 else 0
    return min(total, 2**62)


def _peers(name: str, group_ranks: str | None) -> dict[str, Any]:
    """send 0->1 and recv 0<-1 name ranks of the group, one's own first."""
    match = _PEER.search(name)
    if match is None:
        return {}
    own, peer = int(match[1]), int(match[3])
    ranks = json.loads(group_ranks) if group_ranks else []
    return {"comm_rank": own, "peer": ranks[peer] if peer < len(ranks) else None}


def _created(entry: Mapping[str, Any]) -> int | None:
    ns = whole_number(entry.get("time_created_ns"))
    us = whole_number(entry.get("time_created_us"))
    return ns if ns is not None else None if us is None else us * 1000


def _noticed(entry: Mapping[str, Any], what: str) -> int | None:
    value = entry.get(f"time_discovered_{what}_ns")
    return None if value in _ABSENT_TIMES else whole_number(value)


def _frames(frames: Any) -> str | None:
    lines = [
        f"{f.get('name')} ({f.get('filename')}:{f.get('line')})"
        for f in _list(frames)
        if isinstance(f, dict)
    ]
    return "\n".join(lines) or None


def _close_groups(rows: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    """Members of a coalesced group have no events of their own: the closing entry tells."""
    open_members: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row, entry in zip(rows, entries, strict=True):  # in the order recorded
        key = (entry.get("pg_id"), row["seq_kind"], row["seq"])
        if not row["raw_name"].endswith("coalesced") or _list(entry.get("input_sizes")):
            open_members.setdefault(key, []).append(row)
            continue
        for member in open_members.pop(key, []):
            member["coalesced"] = row["raw_name"]
            if row["state"] != member["state"]:
                member |= {"state": row["state"], "retired": row["retired"], "inferred": "state"}


def _states(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the communication library adds of its own communicators (NCCLX, ROCm builds)."""
    states = dump.get("nccl_comm_state")
    return [
        {"source": NAME, "level": "STATE", "text": f"{identity} {key}: {value}"}
        for identity, facts in (states.items() if isinstance(states, dict) else ())
        for key, value in (facts.items() if isinstance(facts, dict) else ())
    ]


def _facts(
    dump: Mapping[str, Any], version: str, rows: list[dict[str, Any]], issues: Issues
) -> dict[str, object]:
    times = [r[k] for r in rows for k in ("enqueue_ns", "start_ns", "end_ns") if r[k]]
    library = dump.get("comm_lib_version", dump.get("nccl_version"))
    versions = {"flight_recorder": version, "nccl_version": library}
    return {
        "versions": compact_json({k: v for k, v in versions.items() if isinstance(v, str) and v}),
        "start_ns": min(times, default=None),
        "end_ns": max(times, default=None),
        "events": len(rows),
        "truncated": issues.has("truncated"),
        "recorded": "timing" if any(r["start_ns"] for r in rows) else "",
    }
