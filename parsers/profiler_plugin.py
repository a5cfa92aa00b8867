"""NCCL's example profiler plugin: async events of groups, collectives, channels and proxy steps.

Written at the end of a communicator: `<name>-<host>-<tid>.txt` (NCCL 2.23 to 2.26), later
`<name>_<commHash>_<rank>.json`. A JSON array with one event a line, `b` and `e` paired by category,
name and order; 2.28.3 to 2.29.2 leave some values unquoted, and a crash leaves out the end. Read
line by line. Times are since the plugin began and not comparable between processes; only the GPU's
clock on channels is.
"""

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import READ, SKIPPED, UNKNOWN, LogPart, parse_records
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues, text_or_none, whole_number
from htk.parsers.common.nccl_calls import compute_call_sizes, dtype_of, find_call_ends

NAME = "profiler_plugin"

_SNIFF = re.compile(
    rb'\A\s*\[\s*\{"name": "[^"]*", "cat": "(?:GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|GROUP|COLL'
    rb'|P2P|GPU|PROXY|NET|NET_IB|NET_SOCK|CE_COLL|CE_SYNC|CE_BATCH)", "ph": "[be]"'
)
_UNQUOTED = re.compile(r'("(?:datatype|Datatype|Stream)":\s*)(nccl\w+|0x[0-9a-fA-F]+|\(nil\))')
_NAMED_FILE = re.compile(r"_(\d{1,20})_(\d+)\.json")
_FURTHEST_US = (1 << 61) // 1000
_CALLS = ("COLL", "P2P", "CE_COLL")
_STEPS = ("NET", "NET_IB", "NET_SOCK", "PROXY")


def sniff(head: Head) -> bool:
    return _SNIFF.match(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    missing = "no complete event of NCCL's profiler plugin"
    return parse_records(source, options, NAME, _Reader, missing)


class _Reader:
    def __init__(self, file_name: str, issues: Issues) -> None:
        self._issues = issues
        self._roots = _Tree()
        self._named_file = _NAMED_FILE.search(file_name)

    def read(self, line: LogLine) -> str | None:
        bare = line.text.strip().strip(",").removeprefix("[").strip()
        if bare in ("", "{}", "{}]", "]"):
            return SKIPPED
        try:
            event = json.loads(_UNQUOTED.sub(r'\1"\2"', bare), parse_float=Decimal)
        except (ValueError, RecursionError, InvalidOperation) as error:
            kind = "broken_event" if bare.endswith("}") else "truncated"
            self._issues.add(kind, f"{error}: {bare[:80]}", line.offset)
            return UNKNOWN
        if not isinstance(event, dict) or "ph" not in event:
            return SKIPPED
        if not self._roots.take(event):
            note = f"end of {event.get('name')} without its begin"
            self._issues.add("unpaired_event", note, line.offset)
        return READ

    def finish(self) -> LogPart:
        for node in self._roots.open:
            self._issues.add("truncated", f"{node.category} {node.name} has no end")
        file_parts = self._named_file
        own = {
            "source": NAME,
            "comm_hash": int(file_parts[1]) if file_parts else None,
            "comm_rank": int(file_parts[2]) if file_parts else None,
        }
        rows_by_table = _Rows(own)
        rows_by_table.read(self._roots.nodes)
        return LogPart(rows_by_table.tables)


@dataclass
class _Node:
    category: str
    name: str
    identity: Any
    args: Facts
    start: Decimal
    end: Decimal | None = None
    children: list["_Node"] = field(default_factory=list)


class _Tree:
    """Begins and ends in file order: what lies between is nested."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.open: list[_Node] = []

    def take(self, event: Facts) -> bool:
        category = str(event.get("cat"))
        name = str(event.get("name"))
        time: Any = event.get("ts")
        is_time = isinstance(time, Decimal | int) and -_FURTHEST_US < time < _FURTHEST_US
        moment = Decimal(time) if is_time else Decimal(0)
        if event["ph"] == "b":
            args = event.get("args")
            node = _Node(
                category, name, event.get("id"), args if isinstance(args, dict) else {}, moment
            )
            (self.open[-1].children if self.open else self.nodes).append(node)
            self.open.append(node)
            return True
        for k in range(len(self.open) - 1, -1, -1):  # as deep as events nest
            if (self.open[k].category, self.open[k].name) == (category, name):
                self.open[k].end = moment
                del self.open[k:]
                return True
        return False


class _Rows:
    """Rows of the vocabulary from the tree."""

    def __init__(self, own: Facts) -> None:
        self._own = own
        self.tables: dict[str, list[Fields]] = {
            "collectives": [],
            "comm_channels": [],
            "proxy_steps": [],
        }

    def read(self, roots: list[_Node]) -> None:
        """Nodes and what they hold, in order: hostile ones nest deeper than calls may."""
        todo: list[tuple[_Node, Facts, _Node | None]] = []
        todo += [(node, {}, None) for node in reversed(roots)]
        while todo:
            node, call, around = todo.pop()
            call = self._read(node, call, around)
            todo += [(child, call, node) for child in reversed(node.children)]

    def _read(self, node: _Node, call: Facts, around: _Node | None) -> Facts:
        """A node; `call` is the collective round it, `around` the parent. Returns the collective
        round what it holds."""
        if node.category in _CALLS:
            row = self._call(node, around)
            self.tables["collectives"].append(row)
            keys = ("comm_hash", "comm_rank", "type", "seq")
            event = len(self.tables["collectives"]) - 1  # what the file's records are numbered by
            call = {key: row.get(key) for key in keys} | {"event": event}
        elif node.category == "GPU":
            of_call = {key: value for key, value in call.items() if key != "event"}
            self.tables["comm_channels"].append(self._build_channel(node, of_call))
        elif node.category in _STEPS and node.name not in ("Idle", "Sleep", "Append"):
            self.tables["proxy_steps"].append(self._build_step(node, call, around))
        return call

    def _call(self, node: _Node, around: _Node | None) -> Fields:
        args = node.args
        kind = collective_type(node.name)
        api = around.args if around is not None and around.category.endswith("_API") else {}
        dtype = _spell_dtype(api.get("datatype", args.get("Datatype", args.get("datatype"))))
        count = whole_number(api.get("count", args.get("Count", args.get("count"))))
        clocks = [c for c in map(_read_clock, node.children) if c]
        strategy = text_or_none(args.get("strategy"))
        gpu_us = args.get("duration_gpu_us")
        return {
            **self._own,
            "comm_hash": read_unsigned(args.get("CommHash"), self._own["comm_hash"]),
            "comm_rank": read_unsigned(args.get("Rank"), self._own["comm_rank"]),
            "seq": whole_number(args.get("SeqNum")),
            "seq_kind": "function" if "SeqNum" in args else None,
            "type": kind,
            "raw_name": node.name,
            "library": "nccl",
            **compute_call_sizes(kind, count, dtype, None),
            "root": find_call_ends(kind, whole_number(api.get("root")))["root"],
            "peer": whole_number(args.get("Peer")),
            "algorithm": text_or_none(args.get("Algorithm"))
            or (f"CE {strategy}" if strategy else None),
            "protocol": text_or_none(args.get("Protocol")),
            "channels": whole_number(args.get("nChannels", args.get("nMaxChannels"))),
            "start_ns": min((c[0] for c in clocks), default=None),
            "end_ns": max((c[1] for c in clocks), default=None),
            "duration_ns": _gpu_duration(gpu_us) if gpu_us else _measure_length(node),
            "timing": "gpu" if clocks or gpu_us else "cpu",
        }

    def _build_channel(self, node: _Node, call: Facts) -> Fields:
        clock = _read_clock(node)
        return {
            **self._own,
            **call,
            "channel": whole_number(node.args.get("Channel")),
            "start_ns": clock[0] if clock else None,
            "end_ns": clock[1] if clock else None,
            "timing": "gpu",
        }

    def _build_step(self, node: _Node, call: Facts, around: _Node | None) -> Fields:
        outer = around.args if around is not None and around.category == "PROXY" else {}
        return {
            **self._own,
            **call,
            "channel": whole_number(node.args.get("Channel", outer.get("Channel"))),
            "peer": whole_number(node.args.get("Peer", outer.get("Peer"))),
            "name": node.name,
            "proxy_step": whole_number(node.args.get("Step")),
            "size_bytes": whole_number(node.args.get("transSize", node.args.get("size"))),
            "start_ns": _round_to_ns(node.start),
            "end_ns": _round_to_ns(node.end) if node.end is not None else None,
        }


def read_unsigned(value: Any, instead: Any) -> Any:
    """Return a number of up to 64 bits without a sign."""
    return value if isinstance(value, int) and 0 <= value < 2**64 else instead


def _spell_dtype(value: Any) -> str | None:
    return dtype_of(value) if isinstance(value, int) else text_or_none(value)


def _read_clock(node: _Node) -> tuple[int, int] | None:
    """GPU time of a channel; 0 where it is unknown."""
    start = whole_number(node.args.get("StartGpuClk"))
    stop = whole_number(node.args.get("StopGpuClk"))
    return (start, stop) if start and stop and stop >= start else None


def _measure_length(node: _Node) -> int | None:
    """Only where the begin has a time: that of API events is never set."""
    return _round_to_ns(node.end - node.start) if node.end is not None and node.start else None


def _gpu_duration(micros: Any) -> int | None:
    is_time = isinstance(micros, Decimal | int) and 0 <= micros < _FURTHEST_US
    return _round_to_ns(Decimal(micros)) if is_time else None


def _round_to_ns(micros: Decimal) -> int:
    return int((micros * 1000).to_integral_value())
