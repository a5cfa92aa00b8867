"""PyTorch Flight Recorder: the last collectives of one rank, dumped when a job hangs or on demand.

Written by c10d (ProcessGroupNCCL, later every backend) and torchcomms, as a pickle of plain
containers or as JSON; schemas 1.4 to 2.10 and newer minors. A dump names neither its rank nor its
host: only the file name does (`comm_lib_trace_rank_3`, `nccl_trace_rank_3`).

The pickle is read by an unpickler that knows no global. What a killed process left of one is
walked opcode by opcode, and the whole entries are kept. Not read: thread names.

Times are when the host enqueued, and when its watchdog noticed start and end (every 100 ms or so).
"""

import itertools
import json
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.names.collectives import collective_type, dtype_bytes
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_whole,
    refuse_costly_json,
    salvaged_json,
    table_of,
    text_or_none,
    whole_number,
)
from htk.parsers.common.safe_pickle import (
    PlainUnpickler,
    RefusedPickle,
    is_pickle,
    left_over,
    load_plain,
)

NAME = "flight_recorder"

_MAJORS = (1, 2)
_PICKLED = re.compile(rb"pg_config|profiling_name|comm_lib_version|pg_status")
_JSON = re.compile(rb'"(?:profiling_name|pg_status|comm_lib_version)"\s*:')
_PROFILE = re.compile(
    rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:'
)  # has pg_config too
_MOST_ENTRIES = 1 << 18  # its ring holds 2,000 unless set otherwise
_LONGEST_TEXT = 4096
_MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 1 << 14, 64, 1000  # of one record
_SIMPLE = {str, int}
_FURTHEST_NS = 1 << 61
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
    entries = _entries(dump, issues)
    version = _text(dump.get("version")) or ""
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
        refuse_costly_json(name, data)
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
            return _as_it_is
        if module == "torch.jit._pickle" and name == "restore_type_tag":
            return _as_it_is
        return super().find_class(module, name)


def _as_it_is(value: Any, _tag: Any = None) -> Any:
    """Return the container that a mark is put on: a copy for each mark could fill the memory."""
    if isinstance(value, list | dict):
        return value
    raise RefusedPickle(f"to mark a {type(value).__name__}, which torch does not")


def _unpickled(data: bytes, name: str, issues: Issues) -> Any:
    try:
        return load_plain(data, _Unpickler)
    except RefusedPickle as refused:
        raise MalformedTrace(
            f"{name}: this pickle asks {refused}, which no flight recorder dump does; "
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
    entries = [item for item in left if _is_entry(item)]
    for item in left:
        if isinstance(item, list):
            entries += [e for e in item if _is_entry(e)]
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


def _entries(dump: Mapping[str, Any], issues: Issues) -> list[dict[str, Any]]:
    """The records of collectives, each once: a pickle can name one object a million times."""
    listed = _list(dump.get("entries"))
    entries = list({id(e): e for e in listed if _is_entry(e)}.values())
    if lost := len(listed) - len(entries):
        issues.add("broken_entry", "an entry is no record of a collective", count=lost)
    if more := len(entries[_MOST_ENTRIES:]):
        issues.add("too_many_entries", f"only the first {_MOST_ENTRIES:,} are read", count=more)
    return entries[:_MOST_ENTRIES]


def _is_entry(entry: Any) -> bool:
    name = entry.get("profiling_name") if isinstance(entry, dict) else None
    return isinstance(name, str) and len(name) <= _LONGEST_TEXT


def _text(value: Any) -> str | None:
    """A text or a whole number as text; anything else is none."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    number = whole_number(value)
    return None if number is None else str(number)


def _time(entry: Mapping[str, Any], key: str, unit_ns: int = 1) -> int | None:
    """A time in ns. Raises for one that no clock shows."""
    value = whole_number(entry.get(key))
    if value is not None and abs(value) * unit_ns >= _FURTHEST_NS:
        raise ValueError(f"{key} is {value}")
    return None if value is None else value * unit_ns


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _major(version: str) -> int | None:
    return whole_number(version.partition(".")[0])


class _Groups:
    """The process groups of a dump. Schema 1 names them by number."""

    def __init__(self, dump: Mapping[str, Any], entries: list[dict[str, Any]]) -> None:
        config = dump.get("pg_config")
        self._groups = {
            name: _group(name, value)
            for key, value in (config.items() if isinstance(config, dict) else ())
            if key != "" and (name := _text(key)) is not None
        }
        self._groups |= _unnamed(config, entries)
        self._name_of = {_text(e.get("pg_id")): _name_of_group(e) for e in entries}
        for entry in entries:
            name, description = _process_group(entry)
            self._groups.setdefault(name, _group(name, {"desc": description}))

    def of(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return self._groups[_name_of_group(entry)]

    @property
    def world_size(self) -> int | None:
        sizes = [
            g["group_size"] or 0
            for g in self._groups.values()
            if g["group_desc"] == "default_pg" or g["group"] == "0"
        ]
        return max(sizes, default=0) or None

    def rows(self, status: Any) -> list[dict[str, Any]]:
        groups = {name: dict(group) for name, group in self._groups.items()}
        for key, state in status.items() if isinstance(status, dict) else ():
            name = self._name_of.get(_text(key), _text(key))
            if name in groups and isinstance(state, dict):
                for step in ("enqueued", "started", "completed"):
                    groups[name][f"last_{step}"] = whole_number(
                        state.get(f"last_{step}_collective")
                    )
        return list(groups.values())


def _unnamed(config: Any, entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the default group of a dump whose groups are configured without a name, as gloo's are.

    The members of the group configured last stand under the one empty key: they are those of the
    default group if the dump knows no other.
    """
    value = config.get("") if isinstance(config, dict) else None
    used = {_process_group(e) for e in entries}
    if value is None or len(used) != 1:
        return {}
    ((name, description),) = used
    group = _group(name, value) | {"group_desc": description}
    ranks = group["group_ranks"]
    everyone = ranks == compact_json(list(range(int(group["group_size"] or 0))))
    return {name: group} if everyone and description == "default_pg" else {}


def _process_group(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    pair = entry.get("process_group")
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return _text(pair[0]) or "", text_or_none(pair[1])
    return _text(entry.get("pg_id")) or "", None


def _name_of_group(entry: Mapping[str, Any]) -> str:
    return _process_group(entry)[0]


def _group(name: str, value: Any) -> dict[str, Any]:
    members = value if isinstance(value, dict) else {"ranks": value}
    ranks = _ranks(members.get("ranks"))
    return {
        "source": NAME,
        "group": name,
        "group_desc": text_or_none(members.get("desc")),
        "group_ranks": None if ranks is None else compact_json(ranks),
        "group_size": None if ranks is None else len(ranks),
        "ranks": ranks,
    }


def _ranks(value: Any) -> list[int] | None:
    """A list, or one printed as text: "[0, 1]"."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return None
    ranks = [whole_number(p) for p in parts]
    valid = [r for r in ranks if r is not None and r >= 0]
    return valid if valid and len(valid) == len(ranks) else None


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


_PEER = re.compile(r"(?<!\d)(\d{1,9})\s{0,9}(->|<-)\s{0,9}(\d{1,9})")


def _row(entry: Mapping[str, Any], groups: _Groups) -> dict[str, Any]:
    name = entry["profiling_name"]
    group = groups.of(entry)
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
        **_tensors(entry),
        **_peers(name, group["ranks"]),
        "enqueue_ns": _created(entry),
        "start_ns": _noticed(entry, "started"),
        "end_ns": _noticed(entry, "completed"),
        "duration_ns": _duration(entry.get("duration_ms")),
        "timing": "watchdog",
        "state": text_or_none(entry.get("state")),
        "timeout_ns": _timeout(entry),
        "retired": entry.get("retired") if isinstance(entry.get("retired"), bool) else None,
        "frames": _frames(entry.get("frames")),
    }


def _duration(millis: Any) -> int | None:
    is_number = isinstance(millis, int | float) and not isinstance(millis, bool)
    return round(millis * 1e6) if is_number and abs(millis) < 1e12 else None


def _tensors(entry: Mapping[str, Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for side, prefix in (("input", "in"), ("output", "out")):
        shapes = _shapes(entry.get(f"{side}_sizes"))
        dtypes = [_text(d) or "" for d in _list(entry.get(f"{side}_dtypes"))[:_MOST_TENSORS]]
        counts = [_product(s) for s in shapes]
        columns[f"{prefix}_shapes"] = compact_json(shapes)
        columns["dtype" if side == "input" else "out_dtype"] = ",".join(sorted(set(dtypes))) or None
        if shapes:
            columns[f"{prefix}_elements"] = sum(counts)
            widths = [dtype_bytes(d) for d in dtypes]
            if len(widths) == len(counts) and None not in widths:
                sizes = (n * (w or 0) for n, w in zip(counts, widths, strict=True))
                columns[f"{prefix}_bytes"] = sum(sizes)
    return columns


def _shapes(value: Any) -> list[list[int]]:
    """The sizes of each tensor. Raises for what is none."""
    shapes = [list(s) for s in _list(value) if isinstance(s, list | tuple)]
    if len(shapes) > _MOST_TENSORS:
        raise ValueError(f"sizes of {len(shapes):,} tensors")
    for shape in shapes:
        if len(shape) > _MOST_DIMENSIONS:
            raise ValueError("sizes of more dimensions than a tensor has")
        for size in shape:
            if type(size) is not int or not -1 << 62 < size < 1 << 62:
                raise ValueError("sizes that are no whole numbers")
    return shapes


def _product(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= max(size, 0)
    return min(total, 2**62)


def _peers(name: str, ranks: list[int] | None) -> dict[str, Any]:
    """send 0->1 and recv 0<-1 name ranks of the group, one's own first."""
    match = _PEER.search(name)
    if match is None:
        return {}
    own, peer = int(match[1]), int(match[3])
    return {"comm_rank": own, "peer": ranks[peer] if ranks and peer < len(ranks) else None}


def _created(entry: Mapping[str, Any]) -> int | None:
    ns = _time(entry, "time_created_ns")
    return ns if ns is not None else _time(entry, "time_created_us", 1000)


def _noticed(entry: Mapping[str, Any], what: str) -> int | None:
    key = f"time_discovered_{what}_ns"
    return None if entry.get(key) in _ABSENT_TIMES else _time(entry, key)


def _timeout(entry: Mapping[str, Any]) -> int | None:
    ms = whole_number(entry.get("timeout_ms"))
    return ms * 1_000_000 if ms is not None and 0 < ms < 2**41 else None


def _frames(frames: Any) -> str | None:
    lines = []
    for frame in _list(frames)[:_MOST_FRAMES]:
        if isinstance(frame, dict):
            parts: tuple[Any, ...] = tuple(map(frame.get, ("name", "filename", "line")))
            if not _SIMPLE.issuperset(map(type, parts)):
                parts = tuple(map(_text, parts))
            lines.append("%.1000s (%.1000s:%s)" % parts)  # noqa: UP031  (bounds the lengths)
    return "\n".join(lines) or None


def _close_groups(rows: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    """Members of a coalesced group have no events of their own: the closing entry tells."""
    open_members: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row, entry in zip(rows, entries, strict=True):  # in the order recorded
        key = (_text(entry.get("pg_id")), row["seq_kind"], row["seq"])
        if not row["raw_name"].endswith("coalesced") or _list(entry.get("input_sizes")):
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


def _states(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the communication library adds of its own communicators (NCCLX, ROCm builds)."""
    states = dump.get("nccl_comm_state")
    return [
        {
            "source": NAME,
            "level": "STATE",
            "text": f"{_text(identity)} {_text(key)}: {_shown(value)}",
        }
        for identity, facts in (states.items() if isinstance(states, dict) else ())
        for key, value in (facts.items() if isinstance(facts, dict) else ())
    ]


def _shown(value: Any) -> str:
    """A value as text, of nested ones the beginning."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    short = reprlib.Repr()
    short.maxlevel, short.maxstring = 2, 200
    short.maxdict = short.maxlist = short.maxtuple = 20
    return short.repr(value)


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
