"""What warnings and exceptions say of a job's death: the network, a GPU, the program, memory.

Only texts that are known to mean something are judged; NCCL warns of much that does no harm.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from htk.base.mappings import Facts
from htk.quantities.measures.post_mortem.processes import Processes


@dataclass(frozen=True)
class Meaning:
    """What a text says, and whether it is a cause or what other causes bring about."""

    kind: str  # network_error, gpu_error, out_of_memory, program_error, crashed, peer_closed
    words: str
    is_cause: bool = True
    is_hardware: bool = False  # of the rank itself: it would fail there again


@dataclass(frozen=True)
class Complaint:
    """A text of known meaning, and who wrote it."""

    meaning: Meaning
    who: str
    rank: int | None
    text: str
    source: str
    frames: str | None = None
    time_ns: int | None = None


# In this order: the first that fits is what a text says.
_MEANINGS: tuple[tuple[str, Meaning], ...] = (
    (
        r"status=5\b|Work Request Flushed|WR_FLUSH",
        Meaning("peer_closed", "a connection was taken down", is_cause=False),
    ),
    (
        r"status=12\b|[Tt]ransport retry (?:counter )?exceeded|RETRY_EXC",
        Meaning("network_error", "the peer did not answer until retries ran out"),
    ),
    (
        r"status=13\b|RNR retry|RNR_RETRY",
        Meaning("network_error", "the peer's NIC was never ready to receive"),
    ),
    (
        r"Got completion .{0,99}(?:status=\d|error \d)|ibv_\w{1,64} failed|NET/IB ?: ?Async event"
        r"|[Pp]ort (?:error|down)|link (?:is )?down|LINK_DOWN|local (?:QP|protection) error",
        Meaning("network_error", "InfiniBand or RoCE failed"),
    ),
    (
        r"Connection timed out|No route to host|Network is unreachable|Host is down",
        Meaning("network_error", "the host of a peer cannot be reached"),
    ),
    (
        r"DUE TO (?:TIME LIMIT|PREEMPTION)",
        Meaning("cancelled", "the scheduler ended the job"),
    ),
    (
        r"DUE TO NODE FAIL",
        Meaning("crashed", "a node failed, as the scheduler saw"),
    ),
    (
        r"Xid .{0,99}?\): (?:13|31)\b",
        Meaning("gpu_error", "a kernel failed on the GPU"),
    ),
    (
        r"Xid .{0,99}?\): (?:43|45)\b",
        Meaning("peer_closed", "the driver cleaned up after a process", is_cause=False),
    ),
    (
        r"[Uu]ncorrectable|ECC error|Xid\b|fallen off the bus|NVLink (?:error|failure)"
        r"|hardware (?:stack )?error",
        Meaning("gpu_error", "the GPU or its links failed", is_hardware=True),
    ),
    (
        r"oom[_-]kill|OOMKilled|Out [Oo]f [Mm]emory|out of memory: Killed",
        Meaning("out_of_memory", "the host's memory ran out, and the kernel killed a process"),
    ),
    (
        r"out of memory|OutOfMemoryError|Cannot allocate memory|No space left on device"
        r"|DefaultCPUAllocator",
        Meaning("out_of_memory", "memory or disk space ran out"),
    ),
    (
        r"[Mm]ismatched collective|collective mismatch|[Mm]essage truncated",
        Meaning("program_error", "ranks made different calls"),
    ),
    (
        r"illegal memory access|device-side assert|unspecified launch failure|misaligned address",
        Meaning("gpu_error", "a kernel failed on the GPU"),
    ),
    (
        r"[Cc]uda failure|CUDA error|HIP failure|hip(?:Error|error)",
        Meaning("gpu_error", "CUDA failed"),
    ),
    (
        r"closed by remote peer|Connection reset by peer|Connection refused|Broken pipe"
        r"|remote process exited|[Cc]onnection closed",
        Meaning("peer_closed", "a peer closed its connection", is_cause=False),
    ),
    (
        r"exitcode {0,9}: (?:-9|137)\b|signal 9\b|: Killed|[Ee]xit code:? {1,9}137",
        Meaning("crashed", "it was killed (SIGKILL), as the kernel does where memory runs out"),
    ),
    (
        r"exitcode {0,9}: (?:-11|139|-7|135)\b|signal (?:7|11)\b"
        r"|: (?:Segmentation fault|Bus error)",
        Meaning("crashed", "it accessed memory that is not its own"),
    ),
    (
        r"[Ee]xit ?code|[Ee]xited|tasks? [\d,-]{1,255}: |Dist(?:Backend|Network|Store)Error",
        Meaning("peer_closed", "it ended, and its exit code does not say why", is_cause=False),
    ),
)
_RULES = tuple((re.compile(pattern), meaning) for pattern, meaning in _MEANINGS)
# What comes of a collective that failed elsewhere, or of the launcher ending its processes.
_CONSEQUENCES = re.compile(
    r"DistBackendError|DistNetworkError|ChildFailedError|ProcessGroup|Watchdog caught|NCCL error"
    r"|SignalException|KeyboardInterrupt|SystemExit|recvBytes|sendBytes|TCPStore|RendezvousClosed"
    r"|ncclRemoteError|ProcessRaisedException|ProcessExitedException"
)
_EXCEPTION = "traceback"
_CRASHED = Meaning("crashed", "it ended by an exception or a signal")


def list_complaints(
    comm_notes: pa.Table, python_stacks: pa.Table, processes: Processes
) -> list[Complaint]:
    """Return warnings and exceptions of known meaning, causes first, each text of a rank once."""
    every = [*_list_warned(comm_notes, processes), *_list_raised(python_stacks)]
    once = {(c.who, c.meaning.kind, c.text[:80]): c for c in reversed(every)}
    return sorted(reversed(once.values()), key=lambda c: not c.meaning.is_cause)


def meaning_of(text: str) -> Meaning | None:
    """Return what a warning says; None: nothing that is known to stop a job."""
    return next((meaning for rule, meaning in _RULES if rule.search(text)), None)


def _list_warned(comm_notes: pa.Table, processes: Processes) -> Iterator[Complaint]:
    for row in comm_notes.to_pylist():  # warnings are few
        is_judged = row["level"] in ("WARN", "DIED")
        meaning = meaning_of(row["text"] or "") if is_judged else None
        if meaning is None:
            continue
        rank = row["rank"]
        if rank is None:
            rank = processes.rank_of(row["host"], row["process"])
        yield Complaint(
            meaning,
            _name_process(rank, row),
            rank,
            row["text"],
            row["source"],
            time_ns=row["time_ns"],
        )


def _list_raised(python_stacks: pa.Table) -> Iterator[Complaint]:
    for row in python_stacks.to_pylist():
        text = row["state"] or ""
        fatal = row["source"] != _EXCEPTION and text and text[0].isupper()
        if row["source"] != _EXCEPTION and not fatal:
            continue
        meaning = meaning_of(text) or _CRASHED
        if _CONSEQUENCES.search(text):
            meaning = Meaning("peer_closed", "it ended because a collective failed", is_cause=False)
        yield Complaint(
            meaning,
            _name_process(row["rank"], row),
            row["rank"],
            text,
            row["source"],
            row["frames"],
        )


def _name_process(rank: int | None, row: Facts) -> str:
    named = ":".join(str(row[key]) for key in ("host", "process") if row[key])
    named = f"process {named}" if row["process"] and not row["host"] else named
    if rank is None:
        return named or "a process"
    return f"rank {rank} ({named})" if named else f"rank {rank}"
