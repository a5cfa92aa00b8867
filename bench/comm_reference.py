"""Communication read from raw Kineto files in plain Python: a second opinion, one call at a time.

Nothing of htk is used. All times are on the ranks' own clocks.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

TYPES = {
    "allreduce": "all_reduce", "_allgather_base": "all_gather", "all_to_all": "all_to_all",
    "_reduce_scatter_base": "reduce_scatter", "all_to_allv": "all_to_all",
}  # fmt: skip
WIDTH = {"Float": 4, "BFloat16": 2, "Byte": 1, "Long": 8, "Float8_e4m3fn": 1}
FACTOR = {"all_reduce": 2.0, "broadcast": None, "reduce": None}  # times (n - 1) / n; None: 1
Message = tuple[str, int, int]  # send or recv, the peer, bytes


@dataclass
class Kernel:
    """A call of a rank, as its file tells it; the lower half is worked out over all ranks."""

    rank: int
    start: int
    end: int
    type: str
    group: str
    ranks: tuple[int, ...]
    into: int
    out: int
    splits: list[int] | None  # bytes to each of the group, in an all-to-all that lists them
    root: int | None  # global rank
    seq: int | None
    messages: list[Message]
    peers: set[int] = field(default_factory=set)  # numbers of the calls that it meets
    match: frozenset[int] | None = None
    wait: int | None = None
    transfer: int | None = None
    span: int | None = None
    last_rank: int | None = None


def kernels_of(path: Path) -> list[Kernel]:
    """Return the calls of a file in their order."""
    content = json.loads(path.read_text(), parse_float=Decimal)
    job, events = content["distributedInfo"], content["traceEvents"]
    base = content["baseTimeNanoseconds"]
    listed = {(g["pg_name"], g["pg_size"]): tuple(g["ranks"]) for g in job["pg_config"]}
    records: list[dict[str, Any]] = []
    coalesced = False
    launched: dict[int, tuple[list[dict[str, Any]], bool]] = {}  # what each launch stands for
    for event in sorted((e for e in events if e["cat"] != "kernel"), key=lambda e: e["ts"]):
        if event["name"] == "record_param_comms":
            records.append(event["args"])
        elif event["name"] == "nccl:coalesced":
            coalesced = True
        elif event["cat"] == "cuda_runtime":
            launched[event["args"]["correlation"]] = records, coalesced
            records, coalesced = [], False
    kernels = []
    for event in sorted((e for e in events if e["cat"] == "kernel"), key=lambda e: e["ts"]):
        start = base + int(1000 * event["ts"])
        times = job["rank"], start, start + int(1000 * event["dur"])
        kernels.append(_kernel(times, *launched[event["args"]["correlation"]], listed))
    return kernels


def _kernel(
    times: tuple[int, int, int], own: list[Any], coalesced: bool, listed: dict[Any, tuple[int, ...]]
) -> Kernel:
    rank, start, end = times
    first = own[0]
    name = first["Process Group Name"]
    ranks = listed[name, first["Group size"]]
    kind = TYPES.get(first["Collective name"], first["Collective name"])
    width = WIDTH[first["dtype"]]
    into, out = (sum(r[f"{side} msg nelems"] for r in own) * width for side in ("In", "Out"))
    messages = [
        (r["Collective name"], r.get("Dst Rank", r.get("Src Rank")), r["In msg nelems"] * width)
        for r in own if r["Collective name"] in ("send", "recv")
    ]  # fmt: skip
    if coalesced and messages:
        kind = "send_recv"
        into, out = (sum(m[2] for m in messages if m[0] == way) for way in ("send", "recv"))
    splits = [width * elements for elements in json.loads(first["In split size"])] or None
    rooted = kind in ("broadcast", "reduce", "gather", "scatter")
    root = ranks[first["Rank"]] if rooted else None
    seq = None if messages else first.get("Seq")  # of coalesced calls that of the first
    return Kernel(rank, start, end, kind, name, ranks, into, out, splits, root, seq, messages)


def matched(kernels: list[Kernel]) -> list[Kernel]:
    """Return the calls with their match and what follows from it."""
    meeting: dict[Any, list[int]] = defaultdict(list)
    count: dict[Any, int] = defaultdict(int)
    for number, call in enumerate(kernels):
        if call.messages:
            for kind, peer, _ in call.messages:
                way = (call.rank, peer) if kind == "send" else (peer, call.rank)
                key = (call.group, call.ranks, way, kind)
                meeting[call.group, call.ranks, way, count[key]].append(number)
                count[key] += 1
        else:
            key = (call.group, call.ranks, call.rank, call.seq)
            meeting[call.group, call.ranks, call.seq, count[key]].append(number)
            count[key] += 1
    for numbers in meeting.values():
        for number in numbers:
            kernels[number].peers |= set(numbers) - {number}
    for number, call in enumerate(kernels):
        _work_out(kernels, number, call)
    return kernels


def _work_out(kernels: list[Kernel], number: int, call: Kernel) -> None:
    """Put match, wait, transfer, span and last rank into a call that meets others."""
    if not call.peers:
        return
    linked, seen = [number], {number}
    while linked:
        new = kernels[linked.pop()].peers - seen
        seen |= new
        linked += new
    call.match = frozenset(seen)
    near = [kernels[k] for k in (call.peers if call.messages else seen)]
    starts = {k.rank: k.start for k in [*near, call]}
    depends: int | None = max(k.start for k in near)
    if call.type in ("broadcast", "scatter") and call.rank != call.root:
        depends = starts.get(call.root)
    elif call.root is not None and (
        call.type in ("broadcast", "scatter") or call.rank != call.root
    ):
        depends = call.start
    call.last_rank = min(r for r in starts if starts[r] == max(starts.values()))
    call.span = max(k.end for k in [*near, call]) - max(starts.values())
    if call.messages and len(seen) > 2:
        call.span = call.end - max(starts.values())
    if depends is not None:
        call.wait = min(max(depends - call.start, 0), call.end - call.start)
        call.transfer = call.end - call.start - call.wait


def bandwidths(call: Kernel) -> tuple[float, float] | None:
    """Return algorithm and bus bandwidth as nccl-tests have them, in GB/s."""
    if call.span is None or call.span <= 0:
        return None
    count = len(call.ranks)
    shared = (count - 1) / count
    size: float = max(call.into, call.out)
    if call.type in ("all_gather", "gather"):
        size = max(call.out, call.into * count)
    elif call.type in ("reduce_scatter", "scatter"):
        size = max(call.into, call.out * count)
    factor = 1.0 if call.messages or call.type in ("broadcast", "reduce") else shared
    factor = 2 * shared if call.type == "all_reduce" else factor
    kept = call.splits and call.splits[call.ranks.index(call.rank)]
    moved = size * factor if kept is None else size - kept
    return size / call.span, moved / call.span


def members_short(kernels: list[Kernel], call: Kernel) -> bool:
    """Return whether some that a call meets are not recorded."""
    if call.messages:
        met = {kernels[k].rank for k in call.peers}
        return not {peer for _, peer, _ in call.messages} <= met
    return call.match is not None and len(call.match) < len(call.ranks)


def sent_between(kernels: list[Kernel]) -> dict[tuple[int, int], int]:
    """Return the bytes from rank to rank that their senders recorded, in messages, all-to-alls."""
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for call in kernels:
        for kind, peer, size in call.messages:
            if kind == "send":
                sent[call.rank, peer] += size
        parts = call.splits or [call.into // len(call.ranks)] * len(call.ranks)
        for peer, size in zip(call.ranks, parts, strict=True):
            if call.type == "all_to_all" and peer != call.rank:
                sent[call.rank, peer] += size
    return sent
