"""RCCL replay logs: every call of a process with its time (ROCm 7 on, RCCL_REPLAY_FILE=f.json).

Text that looks like JSON and is none: a call a line, `Name : [key : value, …, context : [time :
milliseconds, thread : …, captured : …]]`, lines of `{` and `}` round the calls of a group. The
binary form is undocumented and not read. Times are Unix, when the host made the call.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import READ, SKIPPED, LogPart, parse_records
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues, whole_number
from htk.parsers.common.nccl_calls import compute_call_sizes, dtype_of, find_call_ends

NAME = "rccl_replay"

_FURTHEST_MS = (1 << 61) // 1_000_000
_SNIFF = re.compile(rb"\A\s*\{\s*hostname : \S+, version : \d+,")
_HEAD = re.compile(r"^\s*hostname : (\S+), version : (\d+)")
_CALL = re.compile(r"^\s*(\w+) : \[(.*?)(?:, context : \[(.*?)\])?\s*\],?\s*$")
_PAIR = re.compile(r"(\w+) : ([^,\]]+)")


def sniff(head: Head) -> bool:
    return _SNIFF.match(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_records(source, options, NAME, _Reader, "no call in this RCCL replay log")


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._comms: dict[str, Fields] = {}
        self._calls: list[Fields] = []
        self._facts: dict[str, str] = {}
        self._depth = 0  # of braces: those of the file, and of a group of calls

    def read(self, line: LogLine) -> str | None:
        if head := _HEAD.match(line.text):
            versions = json.dumps({"rccl_replay": head[2]})
            self._facts = {"host": head[1].rstrip(","), "versions": versions}
        elif match := _CALL.match(line.text):
            return self._build_call(match)
        elif line.text.strip(" \t{},"):
            return None
        else:
            self._depth += line.text.count("{") - line.text.count("}")
        return SKIPPED

    def _build_call(self, match: re.Match[str]) -> str:
        arguments = dict(_PAIR.findall(match[2]))
        context = dict(_PAIR.findall(match[3] or ""))
        if "uniqueID" in arguments:
            self._comms[arguments.get("comm", "")] = _build_communicator(arguments)
        elif "count" in arguments:
            row = _build_call(match[1], arguments, context, self._comms)
            self._calls.append(row | {"coalesced": "group" if self._depth > 1 else None})
        else:
            return SKIPPED
        return READ

    def finish(self) -> LogPart:
        groups = [
            {"source": NAME, "comm_hash": c["comm_hash"], "group_size": c["group_size"]}
            for c in self._comms.values()
        ]
        if self._depth > 0:
            self._issues.add("truncated", "a bracket of the log is never closed")
        tables = {"collectives": self._calls, "comm_groups": groups}
        return LogPart(tables, self._facts | {"events": len(self._calls)})


def _build_communicator(arguments: Mapping[str, str]) -> Fields:
    identity = arguments["uniqueID"].strip()
    return {
        "comm_hash": int(identity[:40]) % 2**64 if identity.isdigit() else None,
        "comm_rank": whole_number(arguments.get("rank")),
        "group_size": whole_number(arguments.get("size")),
    }


def _build_call(
    name: str,
    arguments: Mapping[str, str],
    context: Mapping[str, str],
    comms: Mapping[str, Facts],
) -> Fields:
    kind = collective_type(name)
    comm = comms.get(arguments.get("comm", ""), {})
    ranks = whole_number(arguments.get("nranks")) or comm.get("group_size")
    dtype = dtype_of(whole_number(arguments.get("datatype")))
    return {
        "source": NAME,
        "comm_hash": comm.get("comm_hash"),
        "comm_rank": comm.get("comm_rank"),
        "device": whole_number(context.get("device")),
        "group_size": ranks,
        "seq": whole_number(arguments.get("opCount")),
        "seq_kind": "plan",
        "type": kind,
        "raw_name": name,
        "library": "rccl",
        **compute_call_sizes(kind, whole_number(arguments.get("count")), dtype, ranks),
        **find_call_ends(kind, whole_number(arguments.get("root", arguments.get("peer")))),
        "enqueue_ns": _convert_to_ns(context.get("time")),
        "timing": "none",
    }


def _convert_to_ns(millis: str | None) -> int | None:
    try:
        value = Decimal(millis.strip()) if millis else None
        if value is None or not abs(value) < _FURTHEST_MS:
            return None
        return int((value * 1_000_000).to_integral_value())
    except InvalidOperation:
        return None
