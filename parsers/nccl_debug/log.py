"""What the messages of a log say: communicators by process and address, rows by table."""

import re
from dataclasses import dataclass, field

from htk.base.mappings import Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import READ, SKIPPED
from htk.parsers.common.log_records import Issues, RowBuffer
from htk.parsers.common.nccl_calls import compute_call_sizes, dtype_of, find_call_ends
from htk.parsers.nccl_debug import tuning
from htk.parsers.nccl_debug.message import NAME, Message
from htk.parsers.nccl_debug.orders import ChannelOrders

_INIT = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank (\d{1,9}) nranks (\d{1,9})(?: cudaDev (\d{1,4}))?"
    r"(?: nvmlDev -?\d{1,4})?(?: busId \w{1,32})?"
    r"(?: parent (0x[0-9a-f]{1,16}) \w{1,32} (\d{1,9}) color (-?\d{1,19}) key -?\d{1,19})?"
    r"(?: commId (0x[0-9a-f]{1,16}))? ?- Init (START|COMPLETE)"
)
_GONE = re.compile(
    r"comm (0x[0-9a-f]{1,16}) rank \d{1,9} nranks \d{1,9}.{0,255}? - (Destroy|Abort) COMPLETE"
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
_PHASE = re.compile(r"(\w{1,32}) ([\d.]{1,20})")
_TRAIL = re.compile(r"^\S{1,255}:\d{1,6} -> \d{1,3}\b")


@dataclass
class _Comm:
    hash: int | None
    rank: int
    size: int
    device: int | None
    nodes: int | None = None
    parent: int | None = None
    name: str | None = None  # of one that was split from another: its own hash is not logged
    message: "Message | None" = None  # the first that spoke of it
    timed: bool = False

    @property
    def group(self) -> str | None:
        return self.name if self.hash is None else None


@dataclass
class NcclLog:
    """What was read so far: communicators by process and address, rows by table."""

    issues: Issues
    messages: int = 0
    version: str | None = None
    hosts: set[str] = field(default_factory=set)
    comms: dict[tuple[str, str, str], _Comm] = field(default_factory=dict)
    latest: dict[tuple[str, str, str], _Comm] = field(default_factory=dict)  # by thread
    all_comms: list[_Comm] = field(default_factory=list)
    last_call: dict[tuple[str, str, str], Fields] = field(default_factory=dict)
    orders: ChannelOrders = field(default_factory=ChannelOrders)
    tuning_tables: tuning.TuningTables = field(default_factory=tuning.TuningTables)
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

    def read(self, message: Message) -> str:
        self.messages += 1
        text = message.text
        if message.level == "WARN" or _TRAIL.match(text):
            self._note_message(message)
        elif message.level != "INFO":
            return SKIPPED
        elif match := _CALL.search(text):
            self._call(message, match)
        elif _CUT_CALL.search(text):
            self.issues.add("torn_line", text[:80], message.offset)
        elif match := _INIT.search(text):
            self._read_init(message, match)
        elif match := _GONE.search(text):
            comm = self.comms.pop((*message.process, match[1]), None)
            row = self._init_row(message, comm) | {"phase": match[2].lower()}
            self.tables["comm_inits"].append(row)
        elif match := _NODES.search(text):
            comm = self.comms.get((*message.process, match[1]))
            if comm is not None:
                comm.nodes = int(match[2])
        elif match := _TRANSPORT.search(text):
            self._read_transport(message, match)
        elif match := _TIMINGS.search(text):
            self._read_timings(message, match)
        elif match := tuning.CHOICE.search(text):
            self._read_choice(message, match)
        elif match := tuning.SPECIAL.search(text):
            who = self._name_owner(message, self._comm_of(message))
            self.tables["comm_tuning"].append(who | tuning.parse_special(match))
        elif not self._order(message):
            return self._read_table_line(message)
        return READ

    def _name_owner(self, message: Message, comm: _Comm | None) -> Fields:
        return {
            "source": NAME,
            "comm_hash": comm.hash if comm else None,
            "comm_rank": comm.rank if comm else None,
        }

    def _comm_of(self, message: Message) -> _Comm | None:
        return self.latest.get((*message.process, message.tid))

    def _note_message(self, message: Message) -> None:
        self.tables["comm_notes"].append(
            {
                "source": NAME,
                "host": message.host,
                "process": message.pid,
                "level": "WARN" if message.level == "WARN" else "TRAIL",
                "text": message.text,
                "offset": message.offset,
                "device": message.device,
                "time_ns": message.line_ns if message.time_ns is None else message.time_ns,
            }
        )

    def _read_init(self, message: Message, match: re.Match[str]) -> None:
        address = (*message.process, match[1])
        parent = match[5]
        comm = self.comms.get(address)
        if comm is None or (match[9] == "START" and comm.rank != int(match[2])):
            above = self.comms.get((*message.process, parent)) if parent else None
            device = int(match[4]) if match[4] else None
            comm = _Comm(
                None,
                int(match[2]),
                int(match[3]),
                device,
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

    def _read_timings(self, message: Message, match: re.Match[str]) -> None:
        comm = self._comm_of(message)
        row = self._init_row(message, comm)
        row |= {"comm_rank": int(match[1]), "group_size": int(match[2])}
        parts = _PHASE.findall(f"total {match[3]}, {match[4]}")
        for phase, seconds in parts:
            duration = round(float(seconds) * 1e9)
            self.tables["comm_inits"].append(row | {"phase": phase, "duration_ns": duration})
        if comm is not None:
            comm.timed = True

    def _init_row(self, message: Message, comm: _Comm | None) -> Fields:
        return {
            **self._name_owner(message, comm),
            "group_size": comm.size if comm else None,
            "nodes": comm.nodes if comm else None,
            "host": message.host,
            "process": message.pid,
            "device": message.device,
            "parent_hash": comm.parent if comm else None,
            "group": comm.group if comm else None,
        }

    def _order(self, message: Message) -> bool:
        comm = self._comm_of(message)
        hops = self.orders.read(message, comm.size) if comm else None
        for hop in hops or ():
            self.tables["comm_transports"].append(self._of_comm(message, comm) | hop)
        return hops is not None

    def _of_comm(self, message: Message, comm: _Comm | None) -> Fields:
        return {**self._name_owner(message, comm), "group": comm.group if comm else None}

    def _read_transport(self, message: Message, match: re.Match[str]) -> None:
        self.tables["comm_transports"].append(
            {
                **self._of_comm(message, self._comm_of(message)),
                "channel": int(match[1]),
                "from_rank": int(match[2]),
                "to_rank": int(match[3]),
                "transport": match[4].strip(),
            }
        )

    def _call(self, message: Message, match: re.Match[str]) -> None:
        comm = self.comms.get((*message.process, match[9]))
        kind = collective_type(match[1])
        ranks = int(match[10])
        row = {
            **self._name_owner(message, comm),
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
            **compute_call_sizes(kind, int(match[5]), dtype_of(int(match[6])), ranks),
            **find_call_ends(kind, int(match[8])),
            "timing": "none",
        }
        self.tables["collectives"].append(row)
        self.last_call[*message.process, message.tid] = row

    def _read_choice(self, message: Message, match: re.Match[str]) -> None:
        row = self._name_owner(message, self._comm_of(message)) | tuning.parse_choice(
            message.text, match
        )
        call = self.last_call.get((*message.process, message.tid))
        if call is not None and tuning.is_for(call, row):
            for key in ("algorithm", "protocol", "channels"):
                call[key] = row[key]
            row |= {key: call[key] for key in ("comm_hash", "comm_rank", "type")}
        self.tables["comm_tuning"].append(row)

    def _read_table_line(self, message: Message) -> str:
        rows = self.tuning_tables.read(message)
        for row in rows or ():
            self.tables["comm_tuning"].append(
                self._name_owner(message, self._comm_of(message)) | row
            )
        return SKIPPED if rows is None else READ

    def finish(self) -> None:
        """A row for each communicator, whatever number of its ranks wrote to this log."""
        seen: dict[tuple[int | None, str | None, int], Fields] = {}
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
