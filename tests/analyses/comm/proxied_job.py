"""A job of eight ranks on two nodes, as the profiler and NCCL's plugin would each record it.

Rings of four within a node (twice, alike in every call), of two across nodes (four times, alike),
and of all: broadcasts from rank 5, reductions to rank 3. The nodes' clocks are 7 ms apart, and each
process of the plugin has a zero of its own. Times are µs.
"""

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.kineto_file import Event, kernel, launch, of_rank, op, write

RANKS = 8
ROWS = [(0, 1, 2, 3), (4, 5, 6, 7)]
COLUMNS = [(k, k + 4) for k in range(4)]
WORLD = tuple(range(RANKS))
HASHES = {
    members: 9_000_000_000_000_000_000 + 7 * k for k, members in enumerate([*ROWS, *COLUMNS, WORLD])
}
NAMES = {"AllReduce": "allreduce", "Broadcast": "broadcast", "Reduce": "reduce"}
STATES = {
    "send": ("SendGpuWait", "SendPeerWait", "SendWait"),
    "receive": ("RecvWait", "RecvFlushWait", "RecvGpuWait"),
}
PARTS = {
    "SendGpuWait": "gpu_wait", "SendPeerWait": "peer_wait", "SendWait": "network",
    "RecvWait": "data_wait", "RecvFlushWait": "flush", "RecvGpuWait": "gpu_wait",
}  # fmt: skip
SKEW_US = 7000  # of the second node


@dataclass(frozen=True)
class State:
    """A state of one proxy step."""

    direction: str
    channel: int
    peer: int  # in the communicator
    name: str
    start: int
    end: int


@dataclass
class Call:
    """One rank's part of a collective."""

    rank: int
    members: tuple[int, ...]
    function: str
    root: int | None  # in the group
    elements: int
    seq: int
    start: int  # on the true clock
    end: int
    profiled: bool
    states: list[State] = field(default_factory=list)

    @property
    def own(self) -> int:
        return self.members.index(self.rank)


def job(seed: int, steps: int = 6, before: int = 2) -> list[Call]:
    """Return the calls of all ranks, in order; the profiler misses the first steps."""
    dice = random.Random(seed)
    calls: list[Call] = []
    seq: dict[tuple[tuple[int, ...], str], int] = defaultdict(lambda: 40)
    now = 1_000_000
    for step in range(steps):
        plan = [("AllReduce", ROWS, 1 << 20)] * 2 + [("AllReduce", COLUMNS, 1 << 18)]
        plan += [("Broadcast", [WORLD], 4096), ("Reduce", [WORLD], 8192)]
        for function, groups, elements in plan:
            root = {"Broadcast": 5, "Reduce": 3}.get(function)
            for members in groups:
                number = seq[members, function]
                seq[members, function] += 1
                end = now + 400 + dice.randrange(60)
                for rank in members:
                    late = dice.randrange(150)
                    call = Call(
                        rank, members, function, root, elements, number, now + late, end,
                        step >= before,
                    )  # fmt: skip
                    call.states = _states(call, dice)
                    calls.append(call)
            now += 600 + dice.randrange(100)
    return calls


def _states(call: Call, dice: random.Random) -> list[State]:
    """Two channels to the next rank of the ring and from the one before; three steps of each
    overlap."""
    size = len(call.members)
    ends = {"send": (call.own + 1) % size, "receive": (call.own - 1) % size}
    states = []
    for direction, peer in ends.items():
        for channel in range(2):
            for step in range(3):
                time = call.start + 10 * channel + 20 * step
                for name in STATES[direction]:
                    length = dice.randrange(1, 50)
                    states.append(State(direction, channel, peer, name, time, time + length))
                    time += length
    return states


def parts_by_hand(states: list[State]) -> dict[str, Fraction]:
    """Return the ns of each part: each µs is shared by what is open in it."""
    parts: dict[str, Fraction] = defaultdict(Fraction)
    for time in range(min(s.start for s in states), max(s.end for s in states)):
        active = [s for s in states if s.start <= time < s.end]
        for state in active:
            parts[PARTS[state.name]] += Fraction(1000, len(active))
    return parts


def clock(rank: int) -> int:
    """Return what a rank's node's clock is off by, in µs."""
    return SKEW_US * (rank // 4)


def write_profiles(folder: Path, calls: list[Call]) -> None:
    for rank in range(RANKS):
        events: list[Event] = []
        for call in calls:
            if call.rank != rank or not call.profiled:
                continue
            args: dict[str, Any] = {
                "Collective name": NAMES[call.function],
                "dtype": "Float",
                "In msg nelems": call.elements,
                "Out msg nelems": call.elements,
                "Group size": len(call.members),
                "Process Group Name": str(list(HASHES).index(call.members)),
                "Process Group Ranks": str(list(call.members)),
            }
            record = args if call.root is None else args | {"Rank": call.root}
            correlation, start = len(events) + 1, call.start + clock(rank)
            name = f"ncclDevKernel_{call.function}_Sum_f32_RING_LL"
            stream = 20 + len(call.members)
            gpu = kernel(name, start, call.end - call.start, correlation, stream)
            gpu["args"] |= args
            events += [
                op("record_param_comms", start - 20, 10, **record),
                launch(correlation, start - 15),
                gpu,
            ]
        host = {"hostname": f"node{rank // 4}"}
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, RANKS), **host)


def write_records(
    folder: Path,
    calls: list[Call],
    *,
    without: tuple[int, ...] = (),
    no_clock: tuple[int, ...] = (),
    ahead_us: Mapping[int, int] | None = None,
) -> None:
    """Write the plugin's files, but of some ranks; of some without the GPU's clock, of some with
    one that is ahead of the profiler's."""
    for rank in range(RANKS):
        if rank in without:
            continue
        for members in HASHES:
            own = [c for c in calls if c.rank == rank and c.members == members]
            if own:
                name = f"dump_{HASHES[members]}_{own[0].own}.json"
                (folder / name).write_text(
                    _records(own, rank not in no_clock, (ahead_us or {}).get(rank, 0))
                )


def _records(calls: list[Call], has_clock: bool, ahead_us: int) -> str:
    lines: list[dict[str, Any]] = []
    zero = calls[0].start - 1234 * (1 + calls[0].rank)
    for call in calls:
        reduced = call.function != "Broadcast"
        args = {
            "SeqNum": call.seq,
            "CommHash": HASHES[call.members],
            "Rank": call.own,
            "Count": call.elements if reduced else 4 * call.elements,
            "Datatype": "ncclFloat32" if reduced else "ncclInt8",
            "Algorithm": "RING",
            "Protocol": "SIMPLE",
            "nChannels": 2,
        }
        inside: list[dict[str, Any]] = []
        for channel in range(2):
            ends = [1000 * (t + clock(call.rank) + ahead_us) + 137 for t in (call.start, call.end)]
            clocks = dict(
                zip(("StartGpuClk", "StopGpuClk"), ends if has_clock else (0, 0), strict=True)
            )
            inside += _pair("KernelCh", "GPU", call.start, call.end, {"Channel": channel} | clocks)
        for direction, word in (("send", "ProgressSend"), ("receive", "ProgressRecv")):
            for channel in range(2):
                states = [
                    s for s in call.states if (s.direction, s.channel) == (direction, channel)
                ]
                first, last = min(s.start for s in states), max(s.end for s in states)
                begin, end = _pair(
                    word, "PROXY", first, last, {"Channel": channel, "Peer": states[0].peer}
                )
                held = [
                    line
                    for k, s in enumerate(states)
                    for line in _pair(s.name, "NET", s.start, s.end, {"Step": k // 3})
                ]
                inside += [begin, *held, end]
        begin, end = _pair(call.function, "COLL", call.start, call.end, args)
        lines += [begin, *inside, end]
    for line in lines:
        line["ts"] = round(line["ts"] - zero, 3)
    return "[\n" + ",\n".join(json.dumps(line) for line in lines) + ",\n{}]\n"


def _pair(
    name: str, category: str, start: int, end: int, args: dict[str, Any]
) -> list[dict[str, Any]]:
    rest = {"id": 0, "pid": 1, "tid": 1}
    return [
        {"name": name, "cat": category, "ph": "b"} | rest | {"ts": float(start), "args": args},
        {"name": name, "cat": category, "ph": "e"} | rest | {"ts": float(end)},
    ]
