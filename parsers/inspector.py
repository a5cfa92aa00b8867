"""NCCL Inspector: one line of JSON for each finished collective or message of a process.

Written by the profiler plugin libnccl-profiler-inspector.so (NCCL 2.28 and later) as
<host>-pid<pid>.log, output format v4.0; with NCCL_INSPECTOR_DUMP_VERBOSE also per channel. Ranks
are those of the communicator. The time of a line is when it was written, not when the call ran, and
is not read; verbose lines carry times that the host observed, beside the duration that the GPU
measured. Records that a JSON tool printed anew, over several lines or as a list, are read too.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.io.decompress import open_stream
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import READ, UNKNOWN, LogPart, parse_records
from htk.parsers.common.log_lines import LogLine, read_lines
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    read_json,
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
    lines = _printed_records if _is_printed_anew(source) else read_lines
    missing = "no complete line of NCCL Inspector output"
    return parse_records(source, options, NAME, _Reader, missing, lines)


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._calls: list[Fields] = []
        self._channels: list[Fields] = []
        self._groups: dict[tuple[Any, ...], Fields] = {}
        self._metadata: Facts = {}

    def read(self, line: LogLine) -> str | None:
        try:
            record = json.loads(_BARE.sub(r"\1null", line.text), strict=False)
            call, channels = _build_call(record)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            is_cut = isinstance(error, ValueError) and not line.text.rstrip().endswith("}")
            kind = "truncated" if is_cut else "broken_line"
            self._issues.add(
                kind, f"{type(error).__name__}: {error}: {line.text[:80]}", line.offset
            )
            return UNKNOWN
        metadata = record.get("metadata")
        self._metadata = metadata if isinstance(metadata, dict) else self._metadata
        self._calls.append(call)
        self._channels += channels
        comm = call["comm_hash"], call["comm_rank"]
        self._groups.setdefault(comm, _build_group(call, record["header"]))
        return READ

    def finish(self) -> LogPart:
        tables = {
            "collectives": self._calls,
            "comm_channels": self._channels,
            "comm_groups": [*self._groups.values()],
        }
        version = compact_json({"nccl_version": text_or_none(self._metadata.get("git_rev"))})
        return LogPart(
            tables, {"host": text_or_none(self._metadata.get("hostname")), "versions": version}
        )


def _printed_records(
    source: Source, issues: Issues, progress: Callable[[int], None] | None
) -> Iterator[LogLine]:
    """Yield each record that a JSON tool printed anew; what is cut is the last."""
    text = read_json(source, issues, progress).decode("utf8", "replace")
    text = _BARE.sub(r"\1null", text)
    decoder = json.JSONDecoder(strict=False)
    begin = text.find("{")
    while begin >= 0:
        try:
            _, end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            end = len(text)
        yield LogLine(begin, text[begin:end])
        begin = text.find("{", end)


def _is_printed_anew(source: Source) -> bool:
    """Return whether records go over lines, or stand in a list."""
    with source.open() as file, open_stream(file) as stream:
        first = stream.read(1 << 16).lstrip().split(b"\n", 1)[0]
    return first[:1] == b"[" or _MEMBER.search(first) is None


def _build_call(record: Facts) -> tuple[Fields, list[Fields]]:
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
        for channel in _list_channels(perf.get("event_trace_ts"))
    ]
    micros = whole_number(perf.get(f"{sort}_exec_time_us"))
    size = whole_number(perf.get(f"{sort}_msg_size_bytes"))
    name = text_or_none(header.get("comm_name"))
    call = who | {
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
        "start_ns": min(_list_known(channels, "start_ns"), default=None),
        "end_ns": max(_list_known(channels, "end_ns"), default=None),
        "duration_ns": None if micros is None else micros * 1000,
        "timing": "gpu" if perf.get(f"{sort}_timing_source") == _GPU and not channels else "cpu",
    }
    return call, channels


def _list_channels(traced: Any) -> list[Fields]:
    events = traced.get("kernel_events") if isinstance(traced, dict) else None
    return [
        {
            "channel": whole_number(event.get("channel_id")),
            "start_ns": _convert_to_ns(event.get("kernel_start_ts")),
            "end_ns": _convert_to_ns(event.get("kernel_stop_ts")),
            "timing": "cpu",
        }
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict)
    ]


def _list_known(channels: list[Fields], column: str) -> list[int]:
    return [c[column] for c in channels if c[column]]


def _convert_to_ns(micros: Any) -> int | None:
    """Unix microseconds; 0 where it was not seen."""
    value = whole_number(micros)
    return value * 1000 if value else None


def _build_group(call: Facts, header: Facts) -> Fields:
    return {
        "source": NAME,
        "group": call["group"],
        "group_size": call["group_size"],
        "comm_hash": call["comm_hash"],
        "nodes": whole_number(header.get("nnodes")),
    }
