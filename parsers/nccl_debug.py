"""NCCL_DEBUG logs, NCCL's and RCCL's: communicators, calls, transports, tuning, warnings.

Text of any number of processes in one file, with whatever a launcher or scheduler puts before each
line; lines glue together and tear, so a line is taken apart at every `host:pid:tid [dev] NCCL`.
Read: INFO lines of INIT, COLL, TUNING, P2P, NET and the tuning table (2.4 to 2.30), WARN lines and
the trail of errors after them. Not read: GRAPH, TRACE and CALL lines.

Calls are logged when they are enqueued. They have a time where NCCL_DEBUG_TIMESTAMP_LEVELS asks for
it: that of the host's wall clock, without a time zone, read as UTC. Otherwise only their order in a
thread is known. opCount rises once for each launched plan, so it is no sequence number. A
communicator that was split from another logs no hash; parent, split and color tell it instead.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.names.collectives import NCCL_ALGORITHMS, NCCL_PROTOCOLS, collective_type
from htk.parsers.common.log_lines import (
    READ,
    SKIPPED,
    LineFormat,
    LogLine,
    LogPart,
    RowBuffer,
    log_format,
    parse_log,
)
from htk.parsers.common.log_records import Issues
from htk.parsers.common.nccl_calls import dtype_of, ends, sizes

NAME = "nccl_debug"

_LEVEL = r"NCCL (?P<level>INFO|WARN|CALL|TRACE) "
_PREFIX = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)\] )?(?<![^\s:])"
    r"(?P<host>[^\s:]{1,255}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9}) (?:\[(?P<dev>\d{1,4})\] )?"
    rf"(?:(?P<site>\S{{1,255}}:\d{{1,6}})(?: \([^)]{{0,255}}\))? )?{_LEVEL}"
)
_BARE = re.compile(  # as some builds and log collectors leave it: no host, process and thread
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)\] )?"
    r"(?:\[(?P<dev>\d{1,4})\] )?(?:(?P<site>[^\s:]{1,255}:\d{1,6})(?: \([^)]{0,255}\))? )?" + _LEVEL
)
_MARK = re.compile(
    rb"(?:(?<![^\s:])[^\s:]{1,255}:\d{1,9}:\d{1,9} (?:\[\d{1,4}\] )?|(?:^|\n)(?:\[\d{1,4}\] )?)"
    rb"(?:[^\s:]{1,255}:\d{1,6}(?: \([^)]{0,255}\))? )?NCCL (?:INFO|WARN|CALL|TRACE) "
)
_VERSION = re.compile(r"\b[NR]CCL version[ :]{1,9}(\S{1,64})")
_LONGEST_MESSAGE = 2048  # NCCL ends its own at 1,024

_INIT = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nranks (\d{1,9})(?: cudaDev (\d{1,4}))?"
    r"(?: nvmlDev -?\d{1,4})?(?: busId \w{1,32})?"
    r"(?: parent (0x[0-9a-f]{1,16}) \w{1,32} (\d{1,9}) color (-?\d{1,19}) key -?\d{1,19})?"
    r"(?: commId (0x[0-9a-f]{1,16}))? ?- Init (START|COMPLETE)"
)
_NODES = re.compile(r"comm (0x[0-9a-f]{1,16}) rank \d{1,9} nRanks \d{1,9} nNodes (\d{1,9})")
_TIMINGS = re.compile(
    r"Init timings[^:]{0,99}: rank (\d{1,9}) nranks (\d{1,9}) total ([\d.]{1,20}) \(([^)]{0,999})\)"
)
_CALL = re.compile(
    r"\b(\w{1,64}): opCount ([0-9a-f]{1,16}) sendbuff (\S{1,32}) recvbuff (\S{1,32}) "
    r"count (\d{1,19}) datatype (\d{1,4}) op (\d{1,10}) root (-?\d{1,9}) comm (\S{1,32}) "
    r"\[nranks=(\d{1,9})\] stream (\S{1,32})(?: task \d{1,9} globalrank (\d{1,9}))?"
)
_CUT_CALL = re.compile(r"\b\w{1,64}: opCount [0-9a-f]{1,16} sendbuff ")
_TRANSPORT = re.compile(
    r"Channel (\d{1,4})(?:/\d{1,4})? : (\d{1,9})\[\w{1,32}\] -> (\d{1,9})\[\w{1,32}\]"
    r"(?: \[(?:send|receive)\])? via (\S.*)"
)
_CHOICE = re.compile(r"\b(?:(\w{1,64}): )?(\d{1,19}) Bytes -> Algo (\S{1,32}) proto (\S{1,32})")
_LANES = re.compile(r"channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\}")
_PREDICTED = re.compile(r"time ([\d.]{1,20})")
_SPECIAL = re.compile(
    r"\b(\w{1,64}) \[(Symmetric|Copy Engine|Hierarchical CE)\]: (\d{1,19}) Bytes -> "
    r"(?:Kernel (\S{1,255}) nchannels (\d{1,4}))?"
)
_TABLE_HEAD = re.compile(r"^\s{0,99}(Algorithm|Protocol)\s{0,99}\|")
_TABLE_ROW = re.compile(
    r"^\s{0,99}(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s{0,99}\|(.*)"
)
_CELL = re.compile(r"([\d.]{1,20})/\s{0,20}([\d.]{1,20})")
_PHASE = re.compile(r"(\w{1,32}) ([\d.]{1,20})")
_TRAIL = re.compile(r"^\S{1,255}:\d{1,6} -> \d{1,3}\b")


def sniff(head: Head) -> bool:
    return log_format(head) == NAME


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_log(source, options)


@dataclass(frozen=True)
class _Message:
    host: str | None
    pid: str
    tid: str
    device: int | None
    level: str
    text: str
    offset: int
    time_ns: int | None

    @property
    def process(self) -> tuple[str, str]:
        return self.host or "", self.pid


class _Reader:
    """Takes a line apart into the messages of all processes that wrote to it."""

    def __init__(self, _file: str, issues: Issues) -> None:
        self._log = _Log(issues)

    def read(self, line: LogLine) -> str | None:
        if "CCL" not in line.text:
            return None
        readings = [self._log.read(message) for message in self._messages(line)]
        if readings:
            return READ if READ in readings else SKIPPED
        if version := _VERSION.search(line.text):
            self._log.version = version[1]
            return READ
        return None

    def _messages(self, line: LogLine) -> Iterator[_Message]:
        """The messages of a line: several where processes wrote at once."""
        starts = list(_PREFIX.finditer(line.text))
        if not starts:
            if match := _BARE.match(line.text):
                yield self._message(match, line, line.text[match.end() :], None, line.origin)
            return
        for k, match in enumerate(starts):
            host = self._log.host_of(match["host"], first=k == 0)
            end = starts[k + 1].start() if k + 1 < len(starts) else len(line.text)
            if k + 1 < len(starts):  # the next host's name may have the end of this text before it
                glued = starts[k + 1]["host"]
                end += len(glued) - len(self._log.host_of(glued, first=False))
            text = line.text[match.end() : end]
            yield self._message(match, line, text, host, match["pid"], match["tid"])

    def _message(
        self,
        match: re.Match[str],
        line: LogLine,
        text: str,
        host: str | None,
        process: str,
        thread: str = "",
    ) -> _Message:
        device = int(match["dev"]) if match["dev"] else None
        time, level = _time(match["time"]), match["level"]
        text = text[:_LONGEST_MESSAGE]
        return _Message(host, process, thread, device, level, text, line.offset, time)

    def finish(self) -> LogPart:
        log = self._log
        log.finish()
        hosts = sorted(log.hosts)
        versions = json.dumps({"nccl_version": log.version}) if log.version else None
        host = hosts[0] if len(hosts) == 1 else None
        return LogPart(log.tables, {"host": host, "versions": versions, "events": log.messages})


LINES = LineFormat(NAME, _MARK, _Reader)


def _time(text: str | None) -> int | None:
    """A time as the log's host shows it, read as if that were UTC, in ns."""
    if text is None:
        return None
    seconds, _, fraction = text.partition(".")
    try:
        epoch = datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return int(epoch) * 10**9 + int(f"{fraction:0<9}"[:9])


@dataclass
class _Comm:
    hash: int | None
    rank: int
    size: int
    device: int | None
    nodes: int | None = None
    parent: int | None = None
    name: str | None = None  # of one that was split from another: its own hash is not logged
    message: "_Message | None" = None  # the first that spoke of it
    timed: bool = False

    @property
    def group(self) -> str | None:
        return self.name if self.hash is None else None


@dataclass
class _Log:
    """What was read so far: communicators by process and address, rows by table."""

    issues: Issues
    messages: int = 0
    version: str | None = None
    hosts: set[str] = field(default_factory=set)
    comms: dict[tuple[str, str, str], _Comm] = field(default_factory=dict)
    latest: dict[tuple[str, str, str], _Comm] = field(default_factory=dict)  # by thread
    all_comms: list[_Comm] = field(default_factory=list)
    last_call: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    heads: dict[tuple[str, str], dict[str, list[str]]] = field(default_factory=dict)
    tables: dict[str, RowBuffer] = field(
        default_factory=lambda: {
            name: RowBuffer(name)
            for name in (
                "collectives",
                "comm_groups",
                "comm_inits",
                "comm_transports",
                "comm_tuning",
                "comm_notes",
            )
        }
    )

    def host_of(self, name: str, *, first: bool) -> str:
        """A host's name; glued to other text it is the known name that the text ends with."""
        if name in self.hosts or first:
            self.hosts.add(name)
            return name
        endings = [h for h in self.hosts if name.endswith(h)]
        host = max(endings, key=len, default=name)
        self.hosts.add(host)
        return host

    def read(self, message: _Message) -> str:
        self.messages += 1
        text = message.text
        if message.level == "WARN" or _TRAIL.match(text):
            self._note(message)
        elif message.level != "INFO":
            return SKIPPED
        elif match := _CALL.search(text):
            self._call(message, match)
        elif _CUT_CALL.search(text):
            self.issues.add("torn_line", text[:80], message.offset)
        elif match := _INIT.search(text):
            self._init(message, match)
        elif match := _NODES.search(text):
            comm = self.comms.get((*message.process, match[1]))
            if comm is not None:
                comm.nodes = int(match[2])
        elif match := _TRANSPORT.search(text):
            self._transport(message, match)
        elif match := _TIMINGS.search(text):
            self._timings(message, match)
        elif match := _CHOICE.search(text):
            self._choice(message, match)
        elif match := _SPECIAL.search(text):
            self._special(message, match)
        else:
            return self._table(message)
        return READ

    def _who(self, message: _Message, comm: _Comm | None) -> dict[str, Any]:
        return {
            "source": NAME,
            "comm_hash": comm.hash if comm else None,
            "comm_rank": comm.rank if comm else None,
        }

    def _comm_of(self, message: _Message) -> _Comm | None:
        return self.latest.get((*message.process, message.tid))

    def _note(self, message: _Message) -> None:
        self.tables["comm_notes"].append(
            {
                "source": NAME,
                "host": message.host,
                "process": message.pid,
                "level": "WARN" if message.level == "WARN" else "TRAIL",
                "text": message.text,
                "offset": message.offset,
                "device": message.device,
                "time_ns": message.time_ns,
            }
        )

    def _init(self, message: _Message, match: re.Match[str]) -> None:
        address, parent = (*message.process, match[1]), match[5]
        comm = self.comms.get(address)
        if comm is None or (match[9] == "START" and comm.rank != int(match[2])):
            above = self.comms.get((*message.process, parent)) if parent else None
            comm = _Comm(
                None,
                int(match[2]),
                int(match[3]),
                int(match[4]) if match[4] else None,
                parent=above.hash if above else None,
                message=message,
            )
            if comm.parent is not None:
                comm.name = f"{comm.parent:#x} split {match[6]} color {match[7]}"
            self.comms[address] = comm
            self.all_comms.append(comm)
        if match[8]:
            comm.hash = int(match[8], 16) & (2**64 - 1)
        self.latest[*message.process, message.tid] = comm

    def _timings(self, message: _Message, match: re.Match[str]) -> None:
        comm = self._comm_of(message)
        row = self._init_row(message, comm)
        row |= {"comm_rank": int(match[1]), "group_size": int(match[2])}
        parts = _PHASE.findall(f"total {match[3]}, {match[4]}")
        for phase, seconds in parts:
            duration = round(float(seconds) * 1e9)
            self.tables["comm_inits"].append(row | {"phase": phase, "duration_ns": duration})
        if comm is not None:
            comm.timed = True

    def _init_row(self, message: _Message, comm: _Comm | None) -> dict[str, Any]:
        return {
            **self._who(message, comm),
            "group_size": comm.size if comm else None,
            "nodes": comm.nodes if comm else None,
            "host": message.host,
            "process": message.pid,
            "device": message.device,
            "parent_hash": comm.parent if comm else None,
            "group": comm.group if comm else None,
        }

    def _transport(self, message: _Message, match: re.Match[str]) -> None:
        self.tables["comm_transports"].append(
            {
                **self._who(message, self._comm_of(message)),
                "channel": int(match[1]),
                "from_rank": int(match[2]),
                "to_rank": int(match[3]),
                "transport": match[4].strip(),
            }
        )

    def _call(self, message: _Message, match: re.Match[str]) -> None:
        comm = self.comms.get((*message.process, match[9]))
        kind, ranks = collective_type(match[1]), int(match[10])
        row = {
            **self._who(message, comm),
            "rank": int(match[12]) if match[12] else None,
            "device": message.device,
            "group": comm.group if comm else None,
            "enqueue_ns": message.time_ns,
            "group_size": ranks,
            "seq": int(match[2], 16),
            "seq_kind": "plan",
            "type": kind,
            "raw_name": match[1],
            "library": "rccl" if match[12] else "nccl",
            **sizes(kind, int(match[5]), dtype_of(int(match[6])), ranks),
            **ends(kind, int(match[8])),
            "timing": "none",
        }
        self.tables["collectives"].append(row)
        self.last_call[*message.process, message.tid] = row

    def _choice(self, message: _Message, match: re.Match[str]) -> None:
        lanes, predicted = _LANES.search(message.text), _PREDICTED.search(message.text)
        row = {
            **self._who(message, self._comm_of(message)),
            "type": collective_type(match[1]) if match[1] else None,
            "size_bytes": int(match[2]),
            "algorithm": _named(match[3], NCCL_ALGORITHMS),
            "protocol": _named(match[4], NCCL_PROTOCOLS),
            "channels": int(lanes[2]) - int(lanes[1]) + 1 if lanes else None,
            "time_us": float(predicted[1]) if predicted else None,
        }
        call = self.last_call.get((*message.process, message.tid))
        if call is not None and _same_call(call, row):
            for key in ("algorithm", "protocol", "channels"):
                call[key] = row[key]
            row |= {key: call[key] for key in ("comm_hash", "comm_rank", "type")}
        self.tables["comm_tuning"].append(row)

    def _special(self, message: _Message, match: re.Match[str]) -> None:
        self.tables["comm_tuning"].append(
            {
                **self._who(message, self._comm_of(message)),
                "type": collective_type(match[1]),
                "size_bytes": int(match[3]),
                "algorithm": match[4] or match[2],
                "channels": int(match[5]) if match[5] else None,
            }
        )

    def _table(self, message: _Message) -> str:
        """The tuning table: three algorithms at a time, latency/bandwidth of each protocol."""
        head = _TABLE_HEAD.match(message.text)
        heads = self.heads.setdefault(message.process, {})
        if head:
            heads[head[1]] = re.findall(r"[A-Za-z]\w*", message.text)[1:]
        row = _TABLE_ROW.match(message.text)
        if row is None or not heads.get("Algorithm"):
            return READ if head else SKIPPED
        protocols = heads.get("Protocol", [])
        for k, (latency, speed) in enumerate(_CELL.findall(row[2])):
            number = k // 3
            if float(speed) == 0 or number >= len(heads["Algorithm"]):
                continue
            self.tables["comm_tuning"].append(
                {
                    **self._who(message, self._comm_of(message)),
                    "type": collective_type(row[1]),
                    "algorithm": _upper(heads["Algorithm"][number]),
                    "protocol": protocols[k].upper() if k < len(protocols) else None,
                    "time_us": float(latency),
                    "bandwidth_gbps": float(speed),
                }
            )
        return READ

    def finish(self) -> None:
        """A row for each communicator, whatever number of its ranks wrote to this log."""
        seen: dict[tuple[int | None, str | None, int], dict[str, Any]] = {}
        for comm in self.all_comms:
            row = seen.setdefault(
                (comm.hash, comm.group, comm.size),
                {
                    "source": NAME,
                    "group": comm.group,
                    "group_size": comm.size,
                    "comm_hash": comm.hash,
                },
            )
            row["nodes"] = comm.nodes or row.get("nodes")
            if comm.message is not None and not comm.timed:
                self.tables["comm_inits"].append(self._init_row(comm.message, comm))
        for row in seen.values():
            self.tables["comm_groups"].append(row)


def _same_call(call: dict[str, Any], choice: dict[str, Any]) -> bool:
    """The choice speaks of that call: bytes of one rank in all_gather and reduce_scatter."""
    if choice["type"] is not None and choice["type"] != call["type"]:
        return False
    sizes_of = (call.get("in_bytes"), call.get("out_bytes"))
    return "algorithm" not in call and choice["size_bytes"] in sizes_of


def _named(text: str, names: tuple[str, ...]) -> str:
    """Older logs print numbers."""
    return names[int(text)] if text.isdigit() and int(text) < len(names) else text.upper()


def _upper(name: str) -> str:
    """CollNetDirect is COLLNET_DIRECT elsewhere."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper().replace("COLL_NET", "COLLNET")
