"""NCCL_DEBUG logs, NCCL's and RCCL's: communicators, calls, transports, tuning, warnings.

Text of any number of processes in one file, with whatever a launcher or scheduler puts before each
line; lines glue together and tear, so a line is taken apart at every `host:pid:tid [dev] NCCL`.
Read: INFO lines of INIT, COLL, TUNING, P2P, NET and the tuning table (2.4 to 2.30), WARN lines and
the trail of errors after them. Not read: GRAPH, TRACE and CALL lines.

Calls are logged when they are enqueued and carry no time: only their order in a thread is known.
opCount rises once for each launched plan, so it is no sequence number.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.names.collectives import NCCL_ALGORITHMS, NCCL_PROTOCOLS, collective_type
from htk.parsers.common.log_records import Issues, read_lines, table_of
from htk.parsers.common.nccl_calls import dtype_of, ends, sizes

NAME = "nccl_debug"

_PREFIX = re.compile(
    r"(?P<host>[^\s:]+):(?P<pid>\d+):(?P<tid>\d+) (?:\[(?P<dev>\d+)\] )?"
    r"(?:(?P<site>\S+:\d+)(?: \([^)]*\))? )?NCCL (?P<level>INFO|WARN|CALL|TRACE) "
)
_SNIFF = re.compile(
    rb"\S+:\d+:\d+ (?:\[\d+\] )?(?:\S+:\d+(?: \([^)]*\))? )?NCCL (?:INFO|WARN|CALL|TRACE) "
)
_VERSION = re.compile(r"\b[NR]CCL version[ :]+(\S+)")

_INIT = re.compile(
    r"comm (0x[0-9a-f]+) rank (\d+) nranks (\d+)(?: cudaDev (\d+))?(?: nvmlDev -?\d+)?"
    r"(?: busId \w+)?(?: parent (0x[0-9a-f]+) \w+ \d+ color (-?\d+) key -?\d+)?"
    r"(?: commId (0x[0-9a-f]+))? ?- Init (START|COMPLETE)"
)
_NODES = re.compile(r"comm (0x[0-9a-f]+) rank \d+ nRanks \d+ nNodes (\d+)")
_TIMINGS = re.compile(r"Init timings.*?rank (\d+) nranks (\d+) total ([\d.]+) \((.*)\)")
_CALL = re.compile(
    r"(\w+): opCount ([0-9a-f]+) sendbuff (\S+) recvbuff (\S+) count (\d+) datatype (\d+) op (\d+) "
    r"root (-?\d+) comm (\S+) \[nranks=(\d+)\] stream (\S+)(?: task \d+ globalrank (\d+))?"
)
_CUT_CALL = re.compile(r"\w+: opCount [0-9a-f]+ sendbuff ")
_TRANSPORT = re.compile(
    r"Channel (\d+)(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\](?: \[(?:send|receive)\])? via (\S.*)"
)
_CHOICE = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\S+) proto (\S+)")
_LANES = re.compile(r"channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_PREDICTED = re.compile(r"time ([\d.]+)")
_SPECIAL = re.compile(
    r"(\w+) \[(Symmetric|Copy Engine|Hierarchical CE)\]: (\d+) Bytes -> "
    r"(?:Kernel (\S+) nchannels (\d+))?"
)
_TABLE_HEAD = re.compile(r"^\s*(Algorithm|Protocol)\s*\|")
_TABLE_ROW = re.compile(r"^\s*(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|(.*)")
_CELL = re.compile(r"([\d.]+)/\s*([\d.]+)")
_TRAIL = re.compile(r"^\S+:\d+ -> \d+")


def sniff(head: Head) -> bool:
    return _SNIFF.search(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    log = _Log(issues)
    for offset, line in read_lines(source, issues, options.progress):
        for message in _messages(line, offset, log):
            log.read(message)
    if not log.messages:
        raise MalformedTrace(f"{source.name}: no line of an NCCL log")
    log.finish()
    tables = {name: table_of(name, rows, of_one_rank=False) for name, rows in log.tables.items()}
    tables["parse_issues"] = issues.table()
    hosts = sorted(log.hosts)
    facts: dict[str, object] = {
        "host": hosts[0] if len(hosts) == 1 else None,
        "versions": json.dumps({"nccl_version": log.version}) if log.version else None,
        "events": log.messages,
    }
    return Parsed(tables, facts=facts)


@dataclass(frozen=True)
class _Message:
    host: str
    pid: str
    tid: str
    device: int | None
    level: str
    text: str
    offset: int

    @property
    def process(self) -> tuple[str, str]:
        return self.host, self.pid


def _messages(line: str, offset: int, log: "_Log") -> Iterator[_Message]:
    """The messages of a line: several where processes wrote at once."""
    prefixes = list(_PREFIX.finditer(line))
    if not prefixes:
        version = _VERSION.search(line)
        if version:
            log.version = version[1]
        return
    for k, match in enumerate(prefixes):
        host, begin = log.host_of(match["host"], first=k == 0), match.end()
        end = prefixes[k + 1].start() if k + 1 < len(prefixes) else len(line)
        if k + 1 < len(prefixes):  # the next host's name may have the end of this text before it
            glued = prefixes[k + 1]["host"]
            end += len(glued) - len(log.host_of(glued, first=False))
        device = int(match["dev"]) if match["dev"] else None
        yield _Message(
            host, match["pid"], match["tid"], device, match["level"], line[begin:end], offset
        )


@dataclass
class _Comm:
    hash: int | None
    rank: int
    size: int
    device: int | None
    nodes: int | None = None
    parent: int | None = None


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
    tables: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {
            name: []
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

    def read(self, message: _Message) -> None:
        self.messages += 1
        text = message.text
        if message.level == "WARN" or _TRAIL.match(text):
            self._note(message)
        elif message.level != "INFO":
            return
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
            self._table(message)

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
            }
        )

    def _init(self, message: _Message, match: re.Match[str]) -> None:
        address, parent = (*message.process, match[1]), match[5]
        comm = self.comms.get(address)
        if comm is None or (match[8] == "START" and comm.rank != int(match[2])):
            above = self.comms.get((*message.process, parent)) if parent else None
            comm = _Comm(
                None,
                int(match[2]),
                int(match[3]),
                int(match[4]) if match[4] else None,
                parent=above.hash if above else None,
            )
            self.comms[address] = comm
            self.all_comms.append(comm)
        if match[7]:
            comm.hash = int(match[7], 16) & (2**64 - 1)
        self.latest[*message.process, message.tid] = comm

    def _timings(self, message: _Message, match: re.Match[str]) -> None:
        comm = self._comm_of(message)
        parts = re.findall(r"(\w+) ([\d.]+)", f"total {match[3]}, {match[4]}")
        for phase, seconds in parts:
            self.tables["comm_inits"].append(
                {
                    **self._who(message, comm),
                    "comm_rank": int(match[1]),
                    "group_size": int(match[2]),
                    "nodes": comm.nodes if comm else None,
                    "host": message.host,
                    "process": message.pid,
                    "device": message.device,
                    "parent_hash": comm.parent if comm else None,
                    "phase": phase,
                    "duration_ns": round(float(seconds) * 1e9),
                }
            )

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
            "event": len(self.tables["collectives"]),
            "device": message.device,
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

    def _table(self, message: _Message) -> None:
        """The tuning table: three algorithms at a time, latency/bandwidth of each protocol."""
        head = _TABLE_HEAD.match(message.text)
        heads = self.heads.setdefault(message.process, {})
        if head:
            heads[head[1]] = re.findall(r"[A-Za-z]\w*", message.text)[1:]
        row = _TABLE_ROW.match(message.text)
        if row is None or not heads.get("Algorithm"):
            return
        protocols = heads.get("Protocol", [])
        for k, (latency, speed) in enumerate(_CELL.findall(row[2])):
            column = k // 3
            if float(speed) == 0 or column >= len(heads["Algorithm"]):
                continue
            self.tables["comm_tuning"].append(
                {
                    **self._who(message, self._comm_of(message)),
                    "type": collective_type(row[1]),
                    "algorithm": _upper(heads["Algorithm"][column]),
                    "protocol": protocols[k].upper() if k < len(protocols) else None,
                    "time_us": float(latency),
                    "bandwidth_gbps": float(speed),
                }
            )

    def finish(self) -> None:
        """A row for each communicator, whatever number of its ranks wrote to this log."""
        seen: dict[tuple[int | None, int], dict[str, Any]] = {}
        for comm in self.all_comms:
            row = seen.setdefault(
                (comm.hash, comm.size),
                {"source": NAME, "group_size": comm.size, "comm_hash": comm.hash},
            )
            row["nodes"] = comm.nodes or row.get("nodes")
        self.tables["comm_groups"] += seen.values()


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
