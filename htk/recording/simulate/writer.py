"""A trace file as PyTorch's profiler (Kineto) writes it, one rank, one step after the other."""

import gzip
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from htk.base.schema.profile import ALLOCATION
from htk.recording.simulate.allocator import Allocator
from htk.recording.simulate.calls import RuntimeCalls
from htk.recording.simulate.clock import BEGIN_NS, Clocks
from htk.recording.simulate.config import Config
from htk.recording.simulate.events import (
    write_complete_event,
    write_flow_event,
    write_instant_event,
    write_metadata_event,
)
from htk.recording.simulate.groups import Group
from htk.recording.simulate.header import write_header
from htk.recording.simulate.instructions import (
    AUTOGRAD,
    Activity,
    Collective,
    Do,
    HostCall,
    Range,
    RankMessage,
    StreamEvent,
)
from htk.recording.simulate.metadata import (
    message_metadata,
    write_collective_metadata,
    write_unnamed_metadata,
)
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.schedule import Timed
from htk.recording.simulate.stages import Stage

_OVERHEAD = '"overhead cost": 0, "overhead occupancy": 0'
_FULL = 0.97  # of the GPU's memory, that the allocator holds when it is full


@dataclass
class _Pass:
    """The state kept while a step's instructions are written; times by the rank's clock."""

    timed: Timed
    since: int  # what begins earlier is not recorded
    begin: list[int]
    end: list[int]
    gpu_start: list[int]
    gpu_end: list[int]
    fired: list[int]
    operators: list[int] = field(default_factory=list)  # open ones, innermost last; 0: unrecorded
    python: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    ranges: list[tuple[Range, int]] = field(default_factory=list)  # open ones shown on the GPU
    shown: dict[tuple[int, int], tuple[str, int, int]] = field(default_factory=dict)
    recorded: dict[int, int] = field(default_factory=dict)  # event to the call that recorded it
    forward: set[int] = field(default_factory=set)  # sequence numbers whose backward is to come

    @property
    def external(self) -> int:
        return self.operators[-1] if self.operators else 0


class Writer:
    """One rank's file. Bytes depend on what is written alone."""

    def __init__(self, config: Config, rank: int, groups: dict[str, Group], path: Path) -> None:
        self.config = config
        self.rank = rank
        self.groups = groups
        self._clocks = Clocks(config)
        self._device = rank % config.gpus_per_node
        stage = Stage(config, rank // config.stage_ranks)
        self._calls = RuntimeCalls(config, self._device)
        self._syncs = config.sync_records and not self._calls.amd  # ROCm records none
        self._pid = 4000 + 8 * rank
        self._tid = {0: self._pid, AUTOGRAD: self._pid + 3}
        self._external = self._correlation = self._launches = self._frames = 0
        self._used: defaultdict[str, int] = defaultdict(int)  # collectives of steps before
        self._exchanged: defaultdict[str, int] = defaultdict(int)  # calls with messages, likewise
        self._sequences = 0
        self._streams: set[int] = set()
        self._unlinked = Plants(config).unlinked(rank)
        self._file = path.open("wb")
        # gzip without a time or a name in it; what is written is compressed as it comes
        self._zip = gzip.GzipFile("", "wb", 5, self._file, mtime=0)
        self._name = path.name.removesuffix(".gz")
        self._write(write_header(config, rank, groups))
        self._memory = Allocator(round(stage.memory.resident), _count_cached_bytes(config))
        self._begin: int | None = None
        self._last = BEGIN_NS

    def step(self, timed: Timed) -> None:
        """Write a step, its ranges on the host and what it launched."""
        column = timed.ranks.index(self.rank)
        local = [
            self._clocks.local(self.rank, each[:, column]).tolist()
            for each in (timed.begin, timed.end, timed.gpu_start, timed.gpu_end, timed.common)
        ]
        since = int(self._clocks.local(self.rank, timed.since[column : column + 1])[0])
        self._begin = since if self._begin is None else self._begin
        state = _Pass(timed, since, *local)
        out: list[str] = []
        if timed.recorded:
            self._open_step(state, out)
        closes = timed.closes
        for k, (do, what) in enumerate(zip(timed.program.do, timed.program.what, strict=True)):
            if do == Do.OPEN:
                self._write_range(state, out, k, closes[k], what)
            elif do == Do.CLOSE:
                _close_range(state, what)
            elif do in (Do.LAUNCH, Do.NODE):
                self._launch(state, out, k, *what)
            elif do in (Do.RECORD, Do.WAIT, Do.SYNC):
                self._event_call(state, out, k, do, what)
            elif do == Do.MEMORY:
                self._allocate(state, out, k, *what)
            elif do == Do.CALL:
                self._runtime_call(state, out, k, *what)
            elif do == Do.THINK and what == "gc":
                self._collect(state, out, k)
        self._show_ranges(state, out)
        self._last = max(self._last, *local[1], *local[3])
        self._write("".join(out))
        self._sequences += timed.program.sequences
        for group, count in timed.program.collectives.items():
            self._used[group] += count
        for group, count in timed.program.exchanges.items():
            self._exchanged[group] += count

    def close(self) -> None:
        tail = [self._write_profiler_span(), *self._write_metadata()]
        tail.append(
            write_instant_event("Iteration Start: PyTorch Profiler", "Traces", self._started)
        )
        tail.append(write_instant_event("Record Window End", "", self._last + 1000))
        self._write(
            "".join(tail).removesuffix(",\n") + f'\n  ],\n  "traceName": "{self._name}"\n}}'
        )
        self._zip.close()
        self._file.close()

    @property
    def _started(self) -> int:
        return BEGIN_NS if self._begin is None else self._begin

    def _open_step(self, state: _Pass, out: list[str]) -> None:
        name = f"ProfilerStep#{state.timed.step}"
        start = state.begin[0]
        end = state.end[-1]
        self._external += 1
        state.ranges.append((Range(name, 0, True, on_gpu=True), self._external))
        args = self._spell_identity()
        out.append(
            write_complete_event("user_annotation", name, self._pid, self._pid, start, end, args)
        )

    def _spell_identity(self, *more: str) -> str:
        first = f'"External id": {self._external}'
        last = f'"Ev Idx": {self._external - 1}'
        return ", ".join((first, *more, last) if more else (first, '"Record function id": 0', last))

    def _write_range(self, state: _Pass, out: list[str], k: int, close: int, what: Range) -> None:
        if what.python:
            self._write_frame(state, out, k, close, what)
            return
        self._external += 1
        start = state.begin[k]
        end = state.end[close]
        tid = self._tid[what.thread]
        recorded = start >= state.since
        if what.annotation:
            shown = what if recorded else replace(what, on_gpu=False)
            state.ranges.append((shown, self._external))
        else:
            state.operators.append(self._external if recorded else 0)
        if not recorded:
            return
        category = "user_annotation" if what.annotation else "cpu_op"
        args = self._spell_identity(*self._list_arguments(what))
        out.append(write_complete_event(category, what.name, self._pid, tid, start, end, args))
        number = self._sequences + what.sequence + 1
        if what.flow == 1:
            state.forward.add(number)
        if what.flow and number in state.forward:
            out.append(
                write_flow_event("sf"[what.flow - 1], "fwdbwd", number, self._pid, tid, start)
            )

    def _write_frame(self, state: _Pass, out: list[str], k: int, close: int, what: Range) -> None:
        """Write a call of Python; the profiler numbers them apart from operators."""
        self._frames += 1
        callers = state.python[what.thread]
        caller = callers[-1] if callers else None
        callers.append(self._frames)
        start = state.begin[k]
        end = state.end[close]
        tid = self._tid[what.thread]
        if start < state.since:
            return
        module = "" if what.module is None else f'"Python module id": {what.module}, '
        args = (
            f'"Python parent id": {"null" if caller is None else caller},'
            f' "Python id": {self._frames}, {module}"Ev Idx": {self._external}'
        )
        out.append(
            write_complete_event("python_function", what.name, self._pid, tid, start, end, args)
        )

    def _list_arguments(self, what: Range) -> list[str]:
        parts = []
        if what.sequence >= 0:
            parts.append(f'"Sequence number": {self._sequences + what.sequence}')
            parts.append(f'"Fwd thread id": {1 if what.flow == 2 else 0}')
        parts.append('"Record function id": 0')
        if what.collective:
            parts.append(self._metadata_of(what.collective, host=True))
        elif what.inputs:
            parts.append(str(what.inputs))
        return parts

    def _launch(self, state: _Pass, out: list[str], k: int, what: Activity, thread: int) -> None:
        first = what.node <= 1  # the other nodes of a graph are launched with it
        self._correlation += first
        self._launches += first
        number = self._correlation
        external = state.external
        begin = state.begin[k]
        start = state.gpu_start[k]
        end = state.gpu_end[k]
        if start < state.since:
            return
        linked = begin >= state.since and self._launches - 1 != self._unlinked
        if linked and first:
            tid = self._tid[thread]
            name, args = self._calls.call(what.call, external, number, what)
            out.append(
                write_complete_event(
                    "cuda_runtime", name, self._pid, tid, begin, state.end[k], args
                )
            )
            out.append(write_flow_event("s", "ac2g", number, self._pid, tid, begin))
            out.append(write_flow_event("f", "ac2g", number, self._device, what.stream, start))
        self._streams.add(what.stream)
        args = self._calls.activity(what, external if linked else 0, number, end - start)
        by_c10d = "nccl" in what.name
        stated: Collective | RankMessage | None = what.collective if by_c10d else None
        if what.exchange and not what.exchange.batched:
            stated = what.exchange.messages[0]
        if stated and self.config.metadata:
            args += ", " + self._metadata_of(stated, host=False)
        out.append(
            write_complete_event(
                what.category, what.name, self._device, what.stream, start, end, args
            )
        )
        for note, range_number in state.ranges:
            if note.on_gpu:
                key = (range_number, what.stream)
                name, low, high = state.shown.get(key, (note.name, start, end))
                state.shown[key] = (name, min(low, start), max(high, end))

    def _metadata_of(self, what: Collective | RankMessage, *, host: bool) -> str:
        group = self.groups[what.group]
        config = self.config
        if not config.named_groups:
            return write_unnamed_metadata(what, group, config.element_type)
        if isinstance(what, RankMessage):
            number = self._exchanged[what.group] + what.sequence + 1
            return message_metadata(what, group, self.rank, number, config.element_type, host=host)
        number = self._used[what.group] + what.sequence + 1
        return write_collective_metadata(
            what, group, self.rank, number, config.element_type, host=host
        )

    def _event_call(self, state: _Pass, out: list[str], k: int, do: Do, what: Any) -> None:
        event: StreamEvent = what[0]
        self._correlation += 1
        number, tid = self._correlation, self._tid[what[-1]]
        start = state.begin[k]
        end = state.end[k]
        if start < state.since:
            return
        name, args = self._calls.call(do, state.external, number)
        out.append(write_complete_event("cuda_runtime", name, self._pid, tid, start, end, args))
        location = f'"device": {self._device}, "context": 1'
        if do == Do.RECORD:
            state.recorded[event.number] = number
            if self._syncs:
                args = f'"event_id": {event.number}, "stream": {event.stream},'
                args += f' "correlation": {number}, {location}'
                fired, lane = state.fired[k], event.stream
                self._streams.add(lane)
                out.append(
                    write_complete_event(
                        "cuda_event", "cudaEvent", self._device, lane, fired, fired + 1, args
                    )
                )
        elif self._syncs:
            stream = cast(int, what[1]) if do == Do.WAIT else -1
            kind = "Stream Wait Event" if do == Do.WAIT else "Event Sync"
            by = state.recorded.get(event.number, -1)
            args = (
                f'"cuda_sync_kind": "{kind}", "wait_on_stream": {event.stream},'
                f' "wait_on_cuda_event_record_corr_id": {by},'
                f' "wait_on_cuda_event_id": {event.number}, "stream": {stream},'
                f' "correlation": {number}, {location}'
            )
            lane = stream if stream >= 0 else 1
            out.append(
                write_complete_event("cuda_sync", kind, self._device, lane, start, end, args)
            )

    def _runtime_call(
        self, state: _Pass, out: list[str], k: int, call: HostCall, thread: int
    ) -> None:
        length = int(call.ns[self.rank])
        start = state.begin[k]
        if not length or start < state.since:
            return
        if call.overhead and not self._calls.amd:
            end = start + length
            name = call.overhead
            out.append(write_complete_event("overhead", name, -1, 0, start, end, _OVERHEAD))
        if call.name:
            self._correlation += 1
            name, args = self._calls.call(call.name, state.external, self._correlation)
            kind = "cuda_driver" if name.startswith("cu") and name[2].isupper() else "cuda_runtime"
            tid = self._tid[thread]
            out.append(write_complete_event(kind, name, self._pid, tid, start, state.end[k], args))

    def _allocate(self, state: _Pass, out: list[str], k: int, moved: int, thread: int) -> None:
        if not moved:
            return
        address = self._memory.move(moved)
        if state.begin[k] < state.since:
            return
        args = (
            f'"Total Reserved": {self._memory.reserved},'
            f' "Total Allocated": {self._memory.allocated}, "Bytes": {moved},'
            f' "Device Id": {self._device}, "Device Type": 1,'
            f' "Addr": {address}, "Ev Idx": {self._external}'
        )
        tid = self._tid[thread]
        out.append(
            write_instant_event(
                ALLOCATION, self._pid, state.begin[k], tid, "cpu_instant_event", args
            )
        )

    def _collect(self, state: _Pass, out: list[str], k: int) -> None:
        """Write a garbage collection, as PyTorch does with `record_python_gc_info`."""
        start = state.begin[k]
        end = state.end[k]
        if end > start >= state.since:
            args = f'"Ev Idx": {self._external}'
            pid = self._pid
            out.append(
                write_complete_event("python_function", "Python GC", pid, pid, start, end, args)
            )

    def _show_ranges(self, state: _Pass, out: list[str]) -> None:
        """Write the GPU's copies of ranges: they begin 1 ns earlier and last 2 ns longer."""
        for (external, stream), (name, low, high) in state.shown.items():
            args = f'"External id": {external}'
            out.append(
                write_complete_event(
                    "gpu_user_annotation", name, self._device, stream, low - 1, high + 1, args
                )
            )

    def _write_profiler_span(self) -> str:
        args = f'"Op count": {self._external}'
        name = "PyTorch Profiler (0)"
        return write_complete_event(
            "Trace", name, "Spans", "PyTorch Profiler", self._started, self._last, args
        )

    def _write_metadata(self) -> list[str]:
        events: list[str] = []
        begin = self._started
        for pid, label, order in (
            (self._pid, "CPU", self._pid),
            (self._device, f"GPU {self._device}", 5_000_000 + self._device),
        ):
            events.append(write_metadata_event("process_name", pid, 0, begin, '"name": "python"'))
            events.append(
                write_metadata_event("process_labels", pid, 0, begin, f'"labels": "{label}"')
            )
            events.append(
                write_metadata_event("process_sort_index", pid, 0, begin, f'"sort_index": {order}')
            )
        for tid, name in ((self._pid, "python"), (self._tid[AUTOGRAD], "pt_autograd_0")):
            events.append(
                write_metadata_event(
                    "thread_name", self._pid, tid, begin, f'"name": "thread {tid} ({name})"'
                )
            )
        for stream in sorted(self._streams):
            name = f'"name": "stream {stream} "'
            events.append(write_metadata_event("thread_name", self._device, stream, begin, name))
        return events

    def _write(self, text: str) -> None:
        self._zip.write(text.encode())


def _count_cached_bytes(config: Config) -> int:
    """Return the bytes that the allocator holds, used or not: nearly all where memory is full."""
    if not Plants(config).has("full_allocator"):
        return 0
    return int(_FULL * config.device.memory_gb * 1e9)


def _close_range(state: _Pass, what: Range) -> None:
    if what.python:
        state.python[what.thread].pop()
    elif what.annotation:
        state.ranges.pop()
    else:
        state.operators.pop()
