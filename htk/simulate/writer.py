"""A trace file as PyTorch's profiler (Kineto) writes it, one rank, one step after the other."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from htk.simulate.clock import BEGIN_NS, Clocks
from htk.simulate.config import Config
from htk.simulate.events import complete, flow, instant, meta
from htk.simulate.groups import Group
from htk.simulate.header import header
from htk.simulate.instructions import (
    AUTOGRAD,
    Activity,
    Collective,
    Do,
    Event,
    Program,
    Range,
)
from htk.simulate.plants import UNLINKED, Plants
from htk.simulate.schedule import Timed

_CALLS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaGraphLaunch": 311,
}
_RECORD, _WAIT, _SYNC = 135, 147, 137  # callback ids of the runtime's event calls
_STREAMS_OF_SYNC = 1_000_000


@dataclass
class _Pass:
    """What is remembered while the instructions of a step are written."""

    timed: Timed
    begin: list[int]
    end: list[int]
    gpu_start: list[int]
    gpu_end: list[int]
    operators: list[int] = field(default_factory=list)  # open ones, innermost last
    ranges: list[tuple[Range, int]] = field(default_factory=list)  # open ones shown on the GPU
    shown: dict[tuple[int, int], tuple[str, int, int]] = field(default_factory=dict)
    recorded: dict[int, int] = field(default_factory=dict)  # event to the call that recorded it


class Writer:
    """One rank's file. Bytes depend on what is written alone."""

    def __init__(self, config: Config, rank: int, groups: dict[str, Group], path: Path) -> None:
        self.config, self.rank, self.groups = config, rank, groups
        self._clocks = Clocks(config)
        self._device = rank % config.gpus_per_node
        self._pid = 4000 + 8 * rank
        self._tid = {0: self._pid, AUTOGRAD: self._pid + 3}
        self._external = self._correlation = self._launches = 0
        self._allocated = self._reserved = 0
        self._next_address = 0x7F0000000000
        self._blocks: defaultdict[int, list[int]] = defaultdict(list)  # alive, by size
        self._used: defaultdict[str, int] = defaultdict(int)  # collectives of steps before
        self._sequences = 0
        self._steps = 0
        self._streams: set[int] = set()
        plants = Plants(config)
        hidden = plants.has("unlinked_launch") and rank == config.written[0]
        self._unlinked = UNLINKED if hidden else -1
        self._file = path.open("wb")
        # gzip without a time or a name in it; what is written is compressed as it comes
        self._zip = gzip.GzipFile("", "wb", 5, self._file, mtime=0)
        self._name = path.name.removesuffix(".gz")
        self._write(header(config, rank, groups))
        held = config.memory
        self._allocated = held.parameters + held.gradients + held.optimizer
        self._last = BEGIN_NS

    def step(self, timed: Timed) -> None:
        """Write a step, its ranges on the host and what it launched."""
        local = [
            self._clocks.local(self.rank, column[:, self.rank]).tolist()
            for column in (timed.begin, timed.end, timed.gpu_start, timed.gpu_end)
        ]
        state = _Pass(timed, *local)
        out: list[str] = []
        if timed.recorded:
            self._open_step(state, out)
        closes = _closes(timed.program)
        for k, (do, what) in enumerate(zip(timed.program.do, timed.program.what, strict=True)):
            if do == Do.OPEN:
                self._range(state, out, k, closes[k], what)
            elif do == Do.CLOSE:
                _close(state, what)
            elif do in (Do.LAUNCH, Do.NODE):
                self._launch(state, out, k, *what)
            elif do in (Do.RECORD, Do.WAIT, Do.SYNC):
                self._event_call(state, out, k, do, what)
            elif do == Do.MEMORY:
                self._memory(state, out, k, *what)
        self._show_ranges(state, out)
        self._last = max(self._last, *local[1], *local[3])
        self._write("".join(out))
        if timed.recorded:
            self._steps += 1
            self._sequences += timed.program.sequences
            for group, count in timed.program.collectives.items():
                self._used[group] += count

    def close(self) -> None:
        tail = [self._span(), *self._metadata()]
        tail.append(instant("Iteration Start: PyTorch Profiler", "Traces", BEGIN_NS))
        tail.append(instant("Record Window End", "", self._last + 1000))
        self._write(
            "".join(tail).removesuffix(",\n") + f'\n  ],\n  "traceName": "{self._name}"\n}}'
        )
        self._zip.close()
        self._file.close()

    def _open_step(self, state: _Pass, out: list[str]) -> None:
        name = f"ProfilerStep#{state.timed.step}"
        start, end = state.begin[0], state.end[-1]
        self._external += 1
        state.ranges.append((Range(name, 0, True, on_gpu=True), self._external))
        args = f'"External id": {self._external}, "Record function id": 0, "Ev Idx": 0'
        out.append(complete("user_annotation", name, self._pid, self._pid, start, end, args))

    def _range(self, state: _Pass, out: list[str], k: int, close: int, what: Range) -> None:
        self._external += 1
        start, end, tid = state.begin[k], state.end[close], self._tid[what.thread]
        args = f'"External id": {self._external}, "Record function id": 0'
        if what.annotation:
            state.ranges.append((what, self._external))
            category = "user_annotation"
        else:
            state.operators.append(self._external)
            category = "cpu_op"
            args += self._operator_arguments(what)
        args += f', "Ev Idx": {self._external}'
        out.append(complete(category, what.name, self._pid, tid, start, end, args))
        if what.flow:
            number = self._sequences + what.sequence + 1
            out.append(flow("sf"[what.flow - 1], "fwdbwd", number, self._pid, tid, start))

    def _operator_arguments(self, what: Range) -> str:
        if what.collective:
            return ", " + self._metadata_of(what.collective, host=True)
        sequence = -1 if what.sequence < 0 else self._sequences + what.sequence
        back = f', "Fwd thread id": {1 if what.flow == 2 else 0}' if what.sequence >= 0 else ""
        shapes = f', "Input Dims": {what.dims}, "Input type": {what.types}' if what.dims else ""
        return f', "Sequence number": {sequence}{back}{shapes}'

    def _launch(self, state: _Pass, out: list[str], k: int, what: Activity, thread: int) -> None:
        first = what.node <= 1  # the other nodes of a graph are launched with it
        self._correlation += first
        self._launches += first
        number = self._correlation
        start, end = state.gpu_start[k], state.gpu_end[k]
        self._streams.add(what.stream)
        external = state.operators[-1] if state.operators else 0
        linked = state.timed.recorded and self._launches - 1 != self._unlinked
        if linked and first:
            tid, at = self._tid[thread], state.begin[k]
            args = (
                f'"External id": {external}, "cbid": {_CALLS[what.call]}, "correlation": {number}'
            )
            out.append(complete("cuda_runtime", what.call, self._pid, tid, at, state.end[k], args))
            out.append(flow("s", "ac2g", number, self._pid, tid, at))
            out.append(flow("f", "ac2g", number, self._device, what.stream, start))
        args = self._activity_arguments(what, external if linked else 0, number, end - start)
        out.append(complete(what.category, what.name, self._device, what.stream, start, end, args))
        for note, its in state.ranges:
            if note.on_gpu:
                key = (its, what.stream)
                name, low, high = state.shown.get(key, (note.name, start, end))
                state.shown[key] = (name, min(low, start), max(high, end))

    def _activity_arguments(self, what: Activity, external: int, number: int, ns: int) -> str:
        given = f'"External id": {external}, ' if external else ""
        place = f'"device": {self._device}, "context": 1, "stream": {what.stream}'
        if what.category != "kernel":
            rate = f'"bytes": {what.moved}, "memory bandwidth (GB/s)": {what.moved / ns:.6g}'
            return f'{given}{place}, "correlation": {number}, {rate}'
        args = f'{given}"queued": 0, {place}, "correlation": {number}, {self._shape(what)}'
        if what.collective and self.config.metadata:
            args += ", " + self._metadata_of(what.collective, host=False)
        return args

    def _shape(self, what: Activity) -> str:
        threads = what.block[0] * what.block[1] * what.block[2]
        blocks = what.grid[0] * what.grid[1] * what.grid[2] / self.config.device.units
        warps = blocks * threads / 32
        occupancy = min(100, round(100 * min(warps, 32) / 64))
        return (
            f'"registers per thread": {what.registers}, "shared memory": {what.shared_bytes},'
            f' "blocks per SM": {blocks:.6f}, "warps per SM": {warps:.6f},'
            f' "grid": {list(what.grid)}, "block": {list(what.block)},'
            f' "est. achieved occupancy %": {occupancy},'
            f' "graph id": {1 if what.node else 0}, "graph node id": {what.node}'
        )

    def _metadata_of(self, what: Collective, host: bool) -> str:
        group = self.groups[what.group]
        mine = group.of_rank[self.rank]
        ranks, name = group.members[mine], group.names[mine]
        number = self._used[what.group] + what.sequence + 1
        facts: dict[str, Any] = {
            "Collective name": what.record,
            "dtype": "Float" if what.element_bytes == 4 else "BFloat16",
            "In msg nelems": what.in_elements,
            "Out msg nelems": what.out_elements,
            "In split size": "[]",
            "Out split size": "[]",
            "Group size": group.size,
            "Process Group Name": name,
            "Process Group Description": group.description,
            "Process Group Ranks": _shortened(ranks),
            "Seq": number,
            "Comms Id": _comms_id(name, number, ranks),
        }
        if host:
            facts["Rank"] = ranks.index(self.rank)
            facts["Global rank start"] = ranks[0]
            facts["Global rank stride"] = ranks[1] - ranks[0] if len(ranks) > 1 else 1
            facts["Is asynchronized op"] = not what.synchronous
        return json.dumps(facts)[1:-1]

    def _event_call(self, state: _Pass, out: list[str], k: int, do: Do, what: Any) -> None:
        event: Event = what[0]
        self._correlation += 1
        number, tid = self._correlation, self._tid[what[-1]]
        name, callback = {
            Do.RECORD: ("cudaEventRecord", _RECORD),
            Do.WAIT: ("cudaStreamWaitEvent", _WAIT),
            Do.SYNC: ("cudaEventSynchronize", _SYNC),
        }[do]
        external = state.operators[-1] if state.operators else 0
        args = f'"External id": {external}, "cbid": {callback}, "correlation": {number}'
        start, end = state.begin[k], state.end[k]
        out.append(complete("cuda_runtime", name, self._pid, tid, start, end, args))
        if do == Do.RECORD:
            state.recorded[event.number] = number
        elif self.config.sync_records:
            stream = cast(int, what[1]) if do == Do.WAIT else -1
            kind = "Stream Wait Event" if do == Do.WAIT else "Event Sync"
            by = state.recorded.get(event.number, -1)
            args = (
                f'"cuda_sync_kind": "{kind}", "wait_on_stream": {event.stream},'
                f' "wait_on_cuda_event_record_corr_id": {by},'
                f' "wait_on_cuda_event_id": {event.number}, "stream": {stream},'
                f' "correlation": {number}, "device": {self._device}, "context": 1'
            )
            lane = stream if stream >= 0 else 1
            out.append(complete("cuda_sync", kind, self._device, lane, start, end, args))

    def _memory(self, state: _Pass, out: list[str], k: int, moved: int, thread: int) -> None:
        if not moved:
            return
        self._allocated += moved
        address = self._address(moved)
        self._reserved = max(self._reserved, -(-self._allocated // 2**21) * 2**21)
        args = (
            f'"Total Reserved": {self._reserved}, "Total Allocated": {self._allocated},'
            f' "Bytes": {moved}, "Addr": {address},'
            f' "Device Id": {self._device}, "Device Type": 1, "Ev Idx": {self._external}'
        )
        tid = self._tid[thread]
        out.append(instant("[memory]", self._pid, state.begin[k], tid, "cpu_instant_event", args))

    def _address(self, moved: int) -> int:
        """Of a new block, or of the youngest of its size, which is the one that is freed."""
        alive = self._blocks[abs(moved)]
        if moved < 0 and alive:
            return alive.pop()
        address = self._next_address
        self._next_address += -(-abs(moved) // 2**21) * 2**21
        if moved > 0:
            alive.append(address)
        return address

    def _show_ranges(self, state: _Pass, out: list[str]) -> None:
        """The GPU's copies of ranges: a nanosecond early, two longer."""
        for (external, stream), (name, low, high) in state.shown.items():
            args = f'"External id": {external}'
            out.append(
                complete("gpu_user_annotation", name, self._device, stream, low - 1, high + 1, args)
            )

    def _span(self) -> str:
        args = f'"Op count": {self._external}'
        name = "PyTorch Profiler (0)"
        return complete("Trace", name, "Spans", "PyTorch Profiler", BEGIN_NS, self._last, args)

    def _metadata(self) -> list[str]:
        found = []
        for pid, label, order in (
            (self._pid, "CPU", self._pid),
            (self._device, f"GPU {self._device}", 5_000_000 + self._device),
        ):
            found.append(meta("process_name", pid, 0, '"name": "python"'))
            found.append(meta("process_labels", pid, 0, f'"labels": "{label}"'))
            found.append(meta("process_sort_index", pid, 0, f'"sort_index": {order}'))
        for tid, name in ((self._pid, "python"), (self._tid[AUTOGRAD], "pt_autograd_0")):
            found.append(meta("thread_name", self._pid, tid, f'"name": "thread {tid} ({name})"'))
        for stream in sorted(self._streams):
            name = f'"name": "stream {stream} "'
            found.append(meta("thread_name", self._device, stream, name))
        return found

    def _write(self, text: str) -> None:
        self._zip.write(text.encode())


def _close(state: _Pass, what: Range) -> None:
    if what.annotation:
        state.ranges.pop()
    else:
        state.operators.pop()


def _closes(program: Program) -> dict[int, int]:
    """Where each range that opens closes again."""
    found, opened = {}, []
    for k, do in enumerate(program.do):
        if do == Do.OPEN:
            opened.append(k)
        elif do == Do.CLOSE:
            found[opened.pop()] = k
    return found


def _shortened(ranks: tuple[int, ...]) -> str:
    """A list as PyTorch shows it: cut above thirty."""
    if len(ranks) <= 30:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[:29]))}, ..., {ranks[-1]}]"


def _comms_id(name: str, number: int, ranks: tuple[int, ...]) -> int:
    text = f"{name},{number},{ranks[0]},{len(ranks)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
