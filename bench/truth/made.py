"""Random recordings, written as Kineto writes them, with what caused what.

Host code is made as a program runs: what is opened is closed in turn, on a thread with a clock of
its own; launches hand work to streams that run in order.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.truth.model import Activity, MemoryEvent, Recording, Span, Thread

# Names with what they are: kind, family, library, use of tensor cores.
KERNELS = {
    "ampere_sgemm_128x64_tn": ("compute", "gemm", "cublas", False),
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn": (
        *("compute", "gemm"),
        *("cublas", True),
    ),
    "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>(int)": (
        *("compute", "elementwise"),
        *("aten", False),
    ),
    "triton_poi_fused_relu_0": ("compute", "elementwise", "triton", False),
    'ядро λ "quoted" \\ kernel': ("compute", "other", None, None),
}
COPIES = {
    "Memcpy HtoD (Pageable -> Device)": ("HtoD", "Pageable -> Device"),
    "Memcpy HtoD (Pinned -> Device)": ("HtoD", "Pinned -> Device"),
    "Memcpy DtoH (Device -> Pinned)": ("DtoH", "Device -> Pinned"),
    "Memcpy DtoH (Device -> Pageable)": ("DtoH", "Device -> Pageable"),
    "Memcpy DtoD (Device -> Device)": ("DtoD", "Device -> Device"),
    "Memcpy PtoP (Device -> Device)": ("PtoP", "Device -> Device"),
}
SETS = {"Memset (Device)": ("set", None), "Memset (Pinned)": ("set", None)}
OPERATORS = (
    *("aten::add", "aten::mm", "aten::relu", "aten::item", "my op <x>", "aten::copy_", "op µ 🚀"),
    *("aten::linear", "aten::empty", "MyFunction", "Optimizer.step#SGD.step", "aten::mm"),
)
FUNCTIONS = (
    *("train.py(12): step", "my.py(40): forward", "torch/cuda/graphs.py(139): replay"),
    *("<built-in method mm of type object at 0x7f01>", "model.py(7): run"),
)
MODULES = ("nn.Module: Linear_0", "nn.Module: Block_1", "nn.Module: MLP_0")
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
RANGES = (
    *("load the data", "my range", "## forward ##", "диапазон", "optimizer step", "other"),
    *("backward pass", LOADER),
)
LAUNCHES = (
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"),
    *("cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel"),
)
WAITS = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
    *("cudaMalloc", "cudaFree", "cudaEventQuery", "cudaEventRecord"),
)
SHAPES = ((64, 32, 16), (1, 4096, 4096), (2048, 1024, 512))  # of products: rows, inner, columns
GPU = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85_000_000_000,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 108,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": 167936,
}
_EPOCH = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Kinds:
    """What a random recording may hold."""

    microseconds: bool = False  # all times are whole microseconds
    equal_times: bool = False  # spans may begin and end together, and take no time
    overlapping_ranges: bool = False  # ranges that end before what they hold ends
    second_process: bool = False  # works beside, with threads of equal numbers
    backwards: bool = False  # the file is in no order of time

    @classmethod
    def of(cls, seed: int) -> "Kinds":
        """Return what the recording of a seed holds."""
        return cls(
            microseconds=seed % 3 == 1,
            equal_times=seed % 4 == 2,
            overlapping_ranges=seed % 7 > 3,
            second_process=seed % 11 > 6,
            backwards=seed % 5 == 3,
        )


@dataclass
class _Host:
    """A thread, where it is in time, and what it has open."""

    thread: Thread
    clock: int
    open: list[Span] = field(default_factory=list)
    loose: list[Span] = field(default_factory=list)  # ranges that end whenever they end
    last: str = ""  # the kind of what began or ended last
    closed: int = -1  # when something ended last

    def innermost(self, kind: str) -> Span | None:
        return next((span for span in reversed(self.open) if span.kind == kind), None)

    @property
    def ranges(self) -> tuple[Span, ...]:
        return (*self.loose, *(span for span in self.open if span.kind == "range"))


class Maker:
    """One process that runs a few random steps."""

    def __init__(self, seed: int, kinds: Kinds, process: str = "100") -> None:
        self.random = Random(seed)
        self.kinds = kinds
        self.tick = 1000 if kinds.microseconds else 1
        self.recording = Recording(gpu=GPU)
        self.events: list[dict[str, Any]] = []
        start = _EPOCH + self.tick * self.random.randrange(1000)
        self.process = process
        self.main = _Host((process, "1"), start)
        self.engine = _Host((process, "2"), start)
        beside = ("200", "1") if kinds.second_process else (process, "3")
        self.worker = _Host(beside, start)
        self.step: int | None = None
        self.free: dict[tuple[int, int], int] = {}  # until when each stream is busy
        self.ids = self.correlations = self.sequence = 1000
        self.devices = self.random.choice((1, 1, 2))
        self.nodes: list[Span] = []  # forward operators that autograd recorded
        self.allocated: dict[int, tuple[int, int]] = {}  # address: device, bytes
        self.total = {device: self.random.choice((0, 1 << 30)) for device in range(self.devices)}

    def make(self) -> None:
        """Run it all."""
        self._carry_in()
        first = self.random.randrange(3)
        for number in range(first, first + self.random.choice((0, 1, 2, 3))):
            self._step(number)
        if self.random.random() < 0.5 or not self.recording.steps:
            self._body(self.main, 3)
        self._end_ranges(self.main, 1)
        self.worker.clock = _EPOCH + 5000 * self.tick
        for _ in range(self.random.randrange(3)):
            self._prefetch()

    def _step(self, number: int) -> None:
        span = self._open(self.main, "step", f"ProfilerStep#{number}")
        self.step = number
        self.nodes = []
        self._body(self.main, 4)
        if self.nodes and self.random.random() < 0.8:
            self._backward()
        if self.random.random() < 0.5:
            self._body(self.main, 2)
        self._close(self.main, span)
        self.step = None

    def _time(self, host: _Host, kind: str, most: int = 8_000) -> None:
        """Let some time pass on a thread; at least a tick, unless times may be equal.

        Of what is not counted together (operators and Python, say) times tell the order alone; a
        call knows the operator that it is of.
        """
        in_operator = host.innermost("operator") is not None
        tells = kind == "memory" and self.kinds.backwards  # where nothing else tells the order
        together = (kind == host.last and not tells) or (
            in_operator and {kind, host.last} <= {"operator", "call"}
        )
        least = 0 if self.kinds.equal_times and together else 1
        host.last = kind
        if self.random.random() < 0.05:
            most *= self.random.choice((20, 20, 20, 20, 20, 20, 20, 500))
        steps = max(most // self.tick, 1)
        host.clock += self.tick * self.random.choice((least, 1, self.random.randint(1, steps)))

    def _open(self, host: _Host, kind: str, name: str, **facts: Any) -> Span:
        self._time(host, kind)
        span = Span(kind, name, host.thread, host.clock, host.clock, facts, step=self.step)
        if host.open and host.open[-1].start == host.clock:
            host.open[-1].facts["lasts"] = True  # something is in it, or looks as if it were
        if host.closed == host.clock:
            span.facts["lasts"] = True  # else it could be in what ended
        if kind == "step":
            span.step = None
        span.caller = host.innermost(kind)
        span.operator = host.innermost("operator")
        span.python = host.innermost("python")
        # The engine's thread works for the main one.
        span.ranges = host.ranges + (self.main.ranges if host is self.engine else ())
        host.open.append(span)
        return span

    @staticmethod
    def _looks_like(span: Span, other: Span, end: int) -> bool:
        """Return whether nothing would tell which of two ranges is round the other."""
        return span.kind == "range" and (span.thread, span.start, end) == (
            other.thread,
            other.start,
            other.end,
        )

    def _close(self, host: _Host, span: Span) -> None:
        self._time(host, span.kind)
        if span.facts.pop("lasts", False) and span.start == host.clock:
            host.clock += self.tick
        while any(self._looks_like(span, other, host.clock) for other in self.recording.ranges):
            host.clock += self.tick
        span.end = host.closed = host.clock
        assert host.open.pop() is span
        rows = self.recording
        into = {
            "operator": rows.operators,
            "python": rows.python,
            "range": rows.ranges,
            "step": rows.steps,
            "call": rows.calls,
        }
        into[span.kind].append(span)

    def _body(self, host: _Host, depth: int) -> None:
        does: list[tuple[Callable[[_Host, int], None], int]] = [
            (self._operator, 6),
            (self._function, 4 if host is not self.worker else 0),
            (self._user_range, 2 if host is self.main else 0),
            (self._launch, 5),
            (self._graph, 1 if host is self.main else 0),
            (self._synchronise, 1),
            (self._memory, 3),
        ]
        chosen, weights = zip(*does, strict=True)
        for _ in range(self.random.randint(0, 4) if depth else 0):
            self.random.choices(chosen, weights)[0](host, depth - 1)
            self._end_ranges(host, 0.2)

    def _operator(self, host: _Host, depth: int) -> None:
        name = self.random.choice(OPERATORS)
        recorded = host is self.main and not any("made" in s.facts for s in host.open)
        number = self.sequence if recorded else -1
        facts: dict[str, Any] = {"id": self._next_id(), "sequence": number, "forward_thread": 0}
        if name == "aten::mm" and self.random.random() < 0.8:
            facts["shapes"] = self.random.choice(SHAPES)
        span = self._open(host, "operator", name, **facts)
        if recorded and self.random.random() < 0.4:
            span.facts["made"] = True
        self._body(host, depth)
        self._close(host, span)
        if span.facts.pop("made", False) and self.sequence == number:
            self.sequence += 1
            self.nodes.append(span)

    def _next_id(self) -> int:
        self.ids += 1
        return self.ids

    def _function(self, host: _Host, depth: int) -> None:
        module = self.random.random() < 0.4
        name = self.random.choice(MODULES if module else FUNCTIONS)
        span = self._open(host, "python", name, id=self._next_id())
        self._body(host, depth)
        self._close(host, span)

    def _user_range(self, host: _Host, depth: int) -> None:
        span = self._open(host, "range", self.random.choice(RANGES))
        if self.kinds.overlapping_ranges and self.random.random() < 0.7:
            host.loose.append(host.open.pop())
            return
        self._body(host, depth)
        self._close(host, span)

    def _end_ranges(self, host: _Host, share: float) -> None:
        """End some of the ranges that hold what ends after them."""
        for span in [span for span in host.loose if self.random.random() < share]:
            host.loose.remove(span)
            host.open.append(span)
            self._close(host, span)

    def _launch(self, host: _Host, depth: int) -> None:
        roll = self.random.random()
        names = KERNELS if roll < 0.75 else COPIES if roll < 0.93 else SETS
        call = "cudaMemsetAsync" if names is SETS else "cudaMemcpyAsync"
        if names is KERNELS:
            call = self.random.choice(LAUNCHES)
        self.correlations += 1
        span = self._open(host, "call", call, correlation=self.correlations)
        stream = 21 if host is self.worker else self.random.choice((7, 7, 7, 20))
        self._run(span, [self.random.choice(list(names))], names, stream)
        self._close(host, span)

    def _graph(self, host: _Host, depth: int) -> None:
        self.correlations += 1
        span = self._open(host, "call", "cudaGraphLaunch", correlation=self.correlations)
        names = self.random.choices(list(KERNELS), k=self.random.randint(1, 6))
        self._run(span, names, KERNELS, 7)
        self._close(host, span)

    def _run(self, call: Span, names: list[str], of: dict[str, Any], stream: int) -> None:
        """Hand work to a stream, which begins it when it is done with what came before."""
        device = 0 if stream == 21 else self.random.randrange(self.devices)
        lane = device, stream
        ready = call.start + self.tick * self.random.randint(1, max(40_000 // self.tick, 1))
        for name in names:
            start = max(ready, self.free.get(lane, 0))
            length = self.random.choice((0, 1, 5000, 20_000, self.random.randrange(60_000)))
            length *= 100 if self.random.random() < 0.02 else 1
            end = start + length // self.tick * self.tick
            self.free[lane] = end
            gap = self.random.choice((0, 1, 40, 5000)) if len(names) > 1 else 0
            ready = end + gap // self.tick * self.tick
            sort = "kernel" if of is KERNELS else "copy" if of is COPIES else "set"
            activity = Activity(name, sort, device, stream, start, end, call=call, step=self.step)
            activity.operator, activity.python = call.operator, call.python
            activity.ranges = call.ranges
            activity.facts = self._facts(sort)
            self.recording.activities.append(activity)

    def _facts(self, sort: str) -> dict[str, Any]:
        if sort != "kernel":
            return {"bytes": self.random.choice((4, 65536, 1 << 20, 123_456_789))}
        return {
            "grid": self.random.choice(([1, 1, 1], [216, 1, 1], [128, 4, 1])),
            "block": self.random.choice(([128, 1, 1], [32, 1, 1], [256, 2, 1])),
            "registers": self.random.choice((16, 86, 90, 255)),
            "shared": self.random.choice((0, 1024, 32768, 65536)),
        }

    def _synchronise(self, host: _Host, depth: int) -> None:
        self.correlations += 1
        span = self._open(host, "call", self.random.choice(WAITS), correlation=self.correlations)
        self._close(host, span)

    def _memory(self, host: _Host, depth: int) -> None:
        """Allocate or free a block of a device."""
        self._time(host, "memory")
        if self.allocated and self.random.random() < 0.4:
            address = self.random.choice(list(self.allocated))
            device, size = self.allocated.pop(address)
            size = -size
        else:
            address = 4096 * self.random.randrange(1, 40)
            if address in self.allocated:
                return
            device = self.random.randrange(self.devices)
            size = self.random.choice((512, 4096, 1 << 20, 3_000_000))
            self.allocated[address] = device, size
        self.total[device] += size
        event = MemoryEvent(
            *(host.clock, host.thread, 1, device, address, size),
            *(self.total[device], 1 << 31, host.innermost("operator")),
        )
        self.recording.memory.append(event)

    def _backward(self) -> None:
        """Have the engine's thread evaluate the nodes, last first, while the main thread waits."""
        name = "torch/_tensor.py(592): backward"
        waiting = self._open(self.main, "python", name, id=self._next_id())
        self._time(self.main, "python")
        self.engine.clock = max(self.engine.clock, self.main.clock)
        for node in reversed(self.nodes):
            short = "".join(c for c in node.name.rpartition("::")[2].title() if c.isalpha())
            name = f"{short}Backward0"
            facts = {"sequence": node.facts["sequence"], "forward_thread": 1}
            outer = self._engine_operator(
                f"autograd::engine::evaluate_function: {name}", node, facts
            )
            inner = self._engine_operator(name, node, facts)
            first = len(self.recording.operators)
            self._body(self.engine, self.random.randrange(3))
            for span in self.recording.operators[first:]:
                span.forward = node
            self._close(self.engine, inner)
            self._close(self.engine, outer)
        self.main.clock = max(self.main.clock, self.engine.clock)
        self._close(self.main, waiting)

    def _engine_operator(self, name: str, node: Span, facts: dict[str, Any]) -> Span:
        span = self._open(self.engine, "operator", name, id=self._next_id(), **facts)
        span.forward = node
        return span

    def _prefetch(self) -> None:
        """Have a third thread do work of its own, whatever the others do."""
        host = self.worker
        facts = {"id": self._next_id(), "sequence": -1, "forward_thread": 0}
        span = self._open(host, "operator", "aten::copy_", **facts)
        self._launch(host, 0)
        self._close(host, span)

    def _carry_in(self) -> None:
        """Begin with work that was launched before the recording."""
        for _ in range(self.random.choice((0, 0, 1, 3))):
            start = max(self.free.get((0, 7), 0), self.main.clock)
            name = self.random.choice(list(KERNELS))
            activity = Activity(name, "kernel", 0, 7, start, start + 3000, carried_in=True)
            activity.facts = self._facts("kernel")
            self.free[0, 7] = start + 3000
            self.recording.activities.append(activity)


def make_recording(seed: int, path: Path, kinds: Kinds | None = None) -> Recording:
    """Write the random recording of a seed, and return what it holds."""
    kinds = kinds or Kinds.of(seed)
    maker = Maker(seed, kinds)
    maker.make()
    recording = maker.recording
    _put_in_steps(recording)
    for activity in recording.activities:
        activity.carried_in &= bool(recording.calls)  # which tell where the recording begins
    random = Random(seed)
    if seed % 5 == 4:  # as another tool may have sorted them
        random.shuffle(recording.activities)
    events = [*_host_events(recording), *_gpu_events(recording), *_memory_events(recording)]
    if kinds.backwards:
        events.reverse()
        recording.activities.reverse()
        recording.memory.reverse()
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{**GPU, "id": device} for device in range(maker.devices)],
        "baseTimeNanoseconds": _EPOCH,
    }
    path.write_text(json.dumps({**header, "traceEvents": events}), encoding="utf-8")
    return recording


def _put_in_steps(recording: Recording) -> None:
    """Tell in which step each span began, whichever thread it is of."""

    def step_at(time: int) -> int | None:
        inside = [s for s in recording.steps if s.start <= time < s.end]
        return int(inside[0].name.partition("#")[2]) if inside else None

    for spans in (recording.operators, recording.python, recording.ranges, recording.calls):
        for span in spans:
            span.step = step_at(span.start)
    for activity in recording.activities:
        activity.step = None if activity.call is None else activity.call.step


_CATEGORIES = {
    "operator": "cpu_op",
    "python": "python_function",
    "range": "user_annotation",
    "step": "user_annotation",
}


def _host_events(recording: Recording) -> list[dict[str, Any]]:
    rows = recording
    spans = [*rows.operators, *rows.python, *rows.ranges, *rows.steps, *rows.calls]
    spans.sort(key=lambda span: (span.start, -span.end))
    events = []
    for span in spans:
        arguments: dict[str, Any] = {}
        category = _CATEGORIES.get(span.kind, "cuda_runtime")
        if span.kind == "call":
            arguments["correlation"] = span.facts["correlation"]
            category = "cuda_driver" if span.name.startswith("cuL") else category
            if span.operator is not None:
                arguments["External id"] = span.operator.facts["id"]
        if span.kind == "python":
            arguments["Python id"] = span.facts["id"]
        if span.kind == "operator":
            arguments["External id"] = span.facts["id"]
            if "shapes" in span.facts:
                rows, inner, columns = span.facts["shapes"]
                arguments["Input Dims"] = [[rows, inner], [inner, columns]]
                arguments["Input type"] = ["float", "float"]
            if span.facts["sequence"] >= 0:
                arguments["Sequence number"] = span.facts["sequence"]
                arguments["Fwd thread id"] = span.facts["forward_thread"]
        events.append(_complete(category, span.name, span.thread, span.start, span.end, arguments))
    return events


def _gpu_events(recording: Recording) -> list[dict[str, Any]]:
    events = []
    for activity in recording.activities:
        facts = activity.facts
        arguments: dict[str, Any] = {"device": activity.device, "stream": activity.stream}
        arguments["correlation"] = activity.call.facts["correlation"] if activity.call else 3
        if activity.operator is not None:
            arguments["External id"] = activity.operator.facts["id"]
        if activity.sort == "kernel":
            arguments |= {"grid": facts["grid"], "block": facts["block"]}
            arguments["registers per thread"] = facts["registers"]
            arguments["shared memory"] = facts["shared"]
        else:
            arguments["bytes"] = facts["bytes"]
        category = {"kernel": "kernel", "copy": "gpu_memcpy", "set": "gpu_memset"}[activity.sort]
        thread = str(activity.device), str(activity.stream)
        row = _complete(category, activity.name, thread, activity.start, activity.end, arguments)
        events.append({**row, "pid": activity.device, "tid": activity.stream})
    return events


def _memory_events(recording: Recording) -> list[dict[str, Any]]:
    return [
        {
            **{"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"},
            **{"pid": int(event.thread[0]), "tid": int(event.thread[1])},
            "ts": (event.time - _EPOCH) / 1000,
            "args": {
                "Addr": event.address,
                "Bytes": event.size,
                "Device Type": event.device_type,
                "Device Id": event.device,
                "Total Allocated": event.allocated,
                "Total Reserved": event.reserved,
                "Ev Idx": number,
            },
        }
        for number, event in enumerate(recording.memory)
    ]


def _complete(
    category: str, name: str, thread: Thread, start: int, end: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        **{"ph": "X", "cat": category, "name": name},
        **{"pid": int(thread[0]), "tid": int(thread[1])},
        **{"ts": (start - _EPOCH) / 1000, "dur": (end - start) / 1000, "args": arguments},
    }
