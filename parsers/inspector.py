"""NCCL Inspector: one line of JSON for each finished collective or message of a process.

Written by the profiler plugin libnccl-profiler-inspector.so (NCCL 2.28 and later) as
<host>-pid<pid>.log, output format v4.0; with NCCL_INSPECTOR_DUMP_VERBOSE also per channel. Ranks
are those of the communicator. The time of a line is when it was written, not when the call ran, and
is not read; verbose lines carry times that the host observed, beside the duration that the GPU
measured. Records that a JSON tool printed anew, over several lines or as a list, are read too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.io.decompress import open_stream
from htk.names.collectives import collective_type
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_json,
    read_lines,
    table_of,
    text_or_none,
    whole_number,
)
from htk.parsers.common.nccl_calls import bytes_of_rank

NAME = "inspector"

_RECORD = re.compile(rb'^\s*\[?\s*\{\s*"header"\s*:\s*\{\s*"id"\s*:\s*"0x[0-9a-fA-F]{1,16}"')
_MEMBER = re.compile(rb'"(?:coll|p2p)_perf"\s*:')
_BARE = re.compile(r"(:\s*)-?(?:inf|nan)\b")  # numbers that are none, printed bare
_GPU = "kernel_gpu"


def sniff(head: Head) -> bool:
    return _RECORD.match(head.data) is not None and _MEMBER.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    calls: list[dict[str, Any]] = []
    channels: list[dict[str, Any]] = []
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    metadata: Mapping[str, Any] = {}
    for number, (offset, record) in enumerate(_records(source, issues, options)):
        try:
            call, call_channels = _call(record, number)
        except (KeyError, TypeError, ValueError) as error:
            issues.add("broken_line", f"{type(error).__name__}: {error}", offset)
            continue
        recorded_now = record.get("metadata")
        metadata = recorded_now if isinstance(recorded_now, dict) else metadata
        calls.append(call)
        channels += call_channels
        groups.setdefault((call["comm_hash"], call["comm_rank"]), _group(call, record["header"]))
    if not calls:
        raise MalformedTrace(f"{source.name}: no whole line of NCCL Inspector output")
    records = {"collectives": calls, "comm_channels": channels, "comm_groups": [*groups.values()]}
    tables = {name: table_of(name, rows, of_one_rank=False) for name, rows in records.items()}
    tables["parse_issues"] = issues.table()
    facts: dict[str, object] = {
        "host": text_or_none(metadata.get("hostname")),
        "versions": compact_json({"nccl_version": text_or_none(metadata.get("git_rev"))}),
        "events": len(calls),
        "truncated": issues.has("truncated"),
    }
    return Parsed(tables, facts=facts)


def _records(
    source: Source, issues: Issues, options: ParseOptions
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each record and where it begins: a line each, or as a JSON tool printed them anew."""
    if not _is_printed_anew(source):
        for offset, line in read_lines(source, issues, options.progress):
            record = _record(line, offset, issues)
            if record is not None:
                yield offset, record
        return
    text = read_json(source, issues, options.progress).decode("utf8", "replace")
    text = _BARE.sub(r"\1null", text)
    decoder = json.JSONDecoder(strict=False)
    begin = text.find("{")
    while begin >= 0:
        try:
            record, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            issues.add("truncated", f"{error}: {text[begin : begin + 80]}", begin)
            return
        yield begin, record
        begin = text.find("{", end)


def _is_printed_anew(source: Source) -> bool:
    """Return whether records go over lines, or stand in a list."""
    with source.open() as file, open_stream(file) as stream:
        first = stream.read(1 << 16).lstrip().split(b"\n", 1)[0]
    return first[:1] == b"[" or _MEMBER.search(first) is None


def _record(line: str, offset: int, issues: Issues) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        record = json.loads(_BARE.sub(r"\1null", line), strict=False)
    except (ValueError, RecursionError) as error:
        kind = "broken_line" if line.rstrip().endswith("}") else "truncated"
        issues.add(kind, f"{error}: {line[:80]}", offset)
        return None
    return record if isinstance(record, dict) else None


def _call(record: Mapping[str, Any], number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a row of `collectives`, and of `comm_channels` where the line is a verbose one."""
    header = record["header"]
    sort = "p2p" if "p2p_perf" in record else "coll"
    perf = record[f"{sort}_perf"]
    kind = collective_type(perf[sort])
    seq = whole_number(perf.get(f"{sort}_sn"))
    who = {
        "source": NAME,
        "comm_hash": int(header["id"], 16),
        "comm_rank": whole_number(header["rank"]),
    }
    channels = [
        who | {"type": kind, "seq": seq} | channel
        for channel in _channels(perf.get("event_trace_ts"))
    ]
    micros = whole_number(perf.get(f"{sort}_exec_time_us"))
    size = whole_number(perf.get(f"{sort}_msg_size_bytes"))
    name = text_or_none(header.get("comm_name"))
    call = who | {
        "event": number,
        "group": None if name == "unknown" else name,
        "group_size": whole_number(header.get("n_ranks")),
        "seq": seq,
        "seq_kind": "p2p" if sort == "p2p" else "function",
        "type": kind,
        "raw_name": perf[sort],
        "library": "nccl",
        **bytes_of_rank(kind, size, whole_number(header.get("n_ranks"))),
        "peer": whole_number(perf.get("p2p_peer")),
        "channels": len(channels) or None,
        "start_ns": min(_known(channels, "start_ns"), default=None),
        "end_ns": max(_known(channels, "end_ns"), default=None),
        "duration_ns": None if micros is None else micros * 1000,
        "timing": "gpu" if perf.get(f"{sort}_timing_source") == _GPU and not channels else "cpu",
    }
    return call, channels


def _channels(traced: Any) -> list[dict[str, Any]]:
    events = traced.get("kernel_events") if isinstance(traced, dict) else None
    return [
        {
            "channel": whole_number(event.get("channel_id")),
            "start_ns": _ns(event.get("kernel_start_ts")),
            "end_ns": _ns(event.get("kernel_stop_ts")),
            "timing": "cpu",
        }
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict)
    ]


def _known(channels: list[dict[str, Any]], column: str) -> list[int]:
    return [c[column] for c in channels if c[column]]


def _ns(micros: Any) -> int | None:
    """Unix microseconds; 0 where it was not seen."""
    value = whole_number(micros)
    return value * 1000 if value else None


def _group(call: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "source": NAME,
        "group": call["group"],
        "group_size": call["group_size"],
        "comm_hash": call["comm_hash"],
        "nodes": whole_number(header.get("nnodes")),
    }
