"""The host's side of a program: ranges, launches, events, what autograd remembers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from htk.physics.wire import wire_bytes
from htk.recording.simulate.config import Config
from htk.recording.simulate.groups import Group, process_groups
from htk.recording.simulate.instructions import (
    BACK,
    COMPUTE,
    CONTEXT,
    GATHER,
    MAIN,
    ONWARD,
    REDUCE,
    REPLICATE,
    Activity,
    Collective,
    Do,
    Exchange,
    Range,
    RankMessage,
    RankProgram,
    StreamEvent,
)
from htk.recording.simulate.operator_inputs import OperatorInputs, Tensors, build_operator_inputs
from htk.recording.simulate.splits import Splits, all_to_next
from htk.recording.simulate.stages import Stage
from htk.recording.simulate.times import Times

# Host costs in ns: entering and leaving an operator, calls of the runtime.
_ENTER, _LEAVE, _LAUNCH, _RECORD, _WAIT, _SYNC = 1700, 700, 4600, 900, 1100, 1500
_CALL, _RETURN = 300, 100  # of a Python function, beyond what operators take anyway
_RECORDS = {
    "all_gather": ("_allgather_base", "c10d::_allgather_base_", "nccl:_all_gather_base"),
    "reduce_scatter": (
        "_reduce_scatter_base",
        "c10d::_reduce_scatter_base_",
        "nccl:_reduce_scatter_base",
    ),
    "all_reduce": ("allreduce", "c10d::allreduce_", "nccl:all_reduce"),
    "all_to_all": ("all_to_allv", "c10d::alltoall_base_", "nccl:all_to_all"),
}
Load = tuple[float, ...]  # of each rank, times the mean
_KERNELS = {
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_{}_RING_LL",
    "all_reduce": "ncclDevKernel_AllReduce_Sum_{}_{}_LL",
    "all_to_all": "ncclDevKernel_SendRecv",
}


class SimulatedHost:
    """Writes a program down as the host of a stage's ranks would run it."""

    def __init__(self, config: Config, stage: Stage | None = None) -> None:
        self.config = config
        self.stage = stage or Stage(config, 0)
        self.times = Times(config)
        self.program = RankProgram()
        self.groups: dict[str, Group] = process_groups(config)
        self.thread = MAIN
        self.tape: list[Callable[[], None]] = []
        self._events = 0
        self._graph = 0  # that is being launched
        self._nodes = 0  # so far in it
        self._modules: dict[str, dict[str, int]] = {}  # by class and path, their numbers

    @contextmanager
    def range(
        self,
        name: str,
        *,
        annotation: bool = False,
        inputs: OperatorInputs | None = None,
        sequence: int = -1,
        flow: int = 0,
        collective: Collective | RankMessage | None = None,
        on_gpu: bool = False,
    ) -> Iterator[None]:
        what = Range(name, self.thread, annotation, inputs, sequence, flow, collective, on_gpu)
        if self._graph:  # no operator runs: the graph has it all
            yield
            return
        self.program.add(Do.OPEN, _ENTER + self.config.profiler_ns, what)
        yield
        self.program.add(Do.CLOSE, _LEAVE, what)

    def function(self, name: str) -> AbstractContextManager[None]:
        """Return a context that records a call of a Python function."""
        return self._record_python(name)

    @contextmanager
    def module(self, kind: str, path: str, forward: str) -> Iterator[None]:
        """Run the block in a call of an nn.Module, by its class and path, and of its `forward`."""
        numbers = self._modules.setdefault(kind, {})
        number = numbers.setdefault(path, len(numbers))
        with (
            self._record_python(f"nn.Module: {kind}_{number}", number),
            self._record_python(forward),
        ):
            yield

    @contextmanager
    def _record_python(self, name: str, module: int | None = None) -> Iterator[None]:
        if self._graph or not self.config.stacks:
            yield
            return
        call = Range(name, self.thread, python=True, module=module)
        self.program.add(Do.OPEN, _CALL + self.config.profiler_ns, call)
        yield
        self.program.add(Do.CLOSE, _RETURN, call)

    def annotation(self, name: str) -> AbstractContextManager[None]:
        return self.range(name, annotation=True, on_gpu=True)

    @contextmanager
    def graph(self, number: int) -> Iterator[None]:
        """Launch what the block launches as one CUDA graph, with its first kernel."""
        self._graph = number
        self._nodes = 0
        yield
        self._graph = 0

    def launch(self, activity: Activity) -> None:
        self.program.hardware_flops += activity.flops
        if self._graph:
            self._nodes += 1
            activity = replace(
                activity, call="cudaGraphLaunch", graph=self._graph, node=self._nodes
            )
            if self._nodes > 1:
                self.program.add(Do.NODE, 0, (activity, self.thread))
                return
        self.program.add(Do.LAUNCH, _LAUNCH + self.config.profiler_ns, (activity, self.thread))

    def think(self, ns: int, why: str = "") -> None:
        self.program.add(Do.THINK, ns, why)

    def memory(self, moved: int) -> None:
        self.program.add(Do.MEMORY, 300 + self.config.profiler_ns, (moved, self.thread))

    def record(self, stream: int) -> StreamEvent:
        self._events += 1
        event = StreamEvent(self._events, self._choose_stream(stream))
        self.program.add(Do.RECORD, _RECORD + self.config.profiler_ns, (event, self.thread))
        return event

    def wait(self, stream: int, event: StreamEvent) -> None:
        if event.stream != self._choose_stream(stream):
            cost = _WAIT + self.config.profiler_ns
            self.program.add(Do.WAIT, cost, (event, self._choose_stream(stream), self.thread))

    def synchronize(self, event: StreamEvent) -> None:
        self.program.add(Do.SYNC, _SYNC + self.config.profiler_ns, (event, self.thread))

    def order(self, after: int, stream: int) -> None:
        """Make what is launched next on `stream` wait for what is on `after` now."""
        if self._choose_stream(after) != self._choose_stream(stream):
            self.wait(stream, self.record(after))

    def next_sequence(self) -> int:
        self.program.sequences += 1
        return self.program.sequences - 1

    def collective(
        self,
        kind: str,
        elements: int,
        group: str,
        stream: int,
        *,
        splits: Splits | None = None,
        to_next: bool = False,
    ) -> None:
        """Launch a collective over a kind of group; `elements`: those of the whole buffer.

        `splits` of an all-to-all whose parts differ; `to_next`: in it each rank sends all that it
        has to its neighbour.
        """
        members = self.groups[group]
        n = members.size
        if n == 1:
            return
        into = elements // n if kind == "all_gather" else elements
        out = elements // n if kind == "reduce_scatter" else elements
        size = self.config.element_bytes
        element = self.config.element_type
        stream = self._choose_stream(stream)
        wire = into * size if to_next else wire_bytes(kind, into * size, out * size, n) or 0
        how = "to_next" if to_next else kind
        transfer = self.times.collective(how, wire, n, members.nodes, members.per_node)
        record, op, note = _RECORDS[kind]
        number = self.program.collectives.get(group, 0)
        self.program.collectives[group] = number + 1
        call = Collective(
            kind,
            record,
            into,
            out,
            size,
            group,
            wire,
            transfer.ns,
            transfer.algorithm,
            number,
            stream == COMPUTE,
            all_to_next(members, into) if to_next else splits,
        )
        called = {
            "all_gather": build_operator_inputs(element, (out,), (into,), None, "False", "-1"),
            "reduce_scatter": build_operator_inputs(
                element, (out,), (into,), None, None, "False", "-1"
            ),
            "all_reduce": build_operator_inputs(
                element, Tensors(((into,),)), None, None, None, None, "-1"
            ),
            "all_to_all": build_operator_inputs(
                element, (out,), (into,), None, "[]", "[]", "False", "-1"
            ),
        }[kind]
        with (
            self.range(op, inputs=called),
            self.range("record_param_comms", collective=call),
            self.range(
                note, annotation=True, inputs=build_operator_inputs(element, (into,)), on_gpu=True
            ),
        ):
            self.think(6000)
            self.launch(self._build_kernel(call, stream))

    def _custom_all_reduce(self, call: Collective, stream: int) -> Activity:
        """Return the kernel of vLLM's own all-reduce: its name says how many ranks it has."""
        element = "float" if call.element_bytes == 4 else "__nv_bfloat16"
        ranks = self.groups[call.group].size
        name = f"void vllm::cross_device_reduce_1stage<{element}, {ranks}>(vllm::RankData*)"
        return Activity(
            name, "comm", stream, call.transfer_ns, grid=(36, 1, 1), block=(512, 1, 1),
            collective=call,
        )  # fmt: skip

    def exchange(self, group: str, parts: list[tuple[str, int]], elements: int) -> None:
        """Send and receive messages of so many elements: `send` or `recv`, and how far on in the
        group the other end is. What is computed next waits for them.

        Batched, they are one kernel of the group's communicator; else one each, of the communicator
        of the pair.
        """
        streams = {ONWARD}
        if self.config.batched_messages:
            self.order(COMPUTE, ONWARD)
            self.batch(group, parts, elements, ONWARD)
        else:
            streams = {
                self._one_message(group, part, elements) for part in self._pair_messages(parts)
            }
        for stream in sorted({self._choose_stream(stream) for stream in streams}):
            self.wait(COMPUTE, self.record(stream))

    def batch(self, group: str, parts: list[tuple[str, int]], elements: int, stream: int) -> None:
        """Launch messages as one kernel (batch_isend_irecv)."""
        sequence = self._next_exchange(group)
        messages = [self._build_message(*part, group, elements, sequence) for part in parts]
        for message in messages:
            with self._record_message(message):
                self.think(3000)
        call = Exchange(tuple(messages), True, group, group)
        with self.range("nccl:coalesced", annotation=True, on_gpu=True):
            self.think(3000)
            self.launch(self._exchange_kernel(call, self._choose_stream(stream)))

    def _one_message(self, group: str, part: tuple[str, int], elements: int) -> int:
        """Launch a message between stages as a kernel of its own; returns its stream."""
        kind, shift = part
        size = self.groups[group].size
        own = self.stage.number
        other = (own + shift) % size
        low, high = sorted((own, other))
        stream = ONWARD if shift == 1 or size == 2 else BACK
        self.order(COMPUTE, stream)
        message = self._build_message(kind, shift, group, elements, self._next_exchange(group))
        call = Exchange((message,), False, group, f"{group} {low}:{high}")
        note = f"nccl:{kind} {own}{'->' if kind == 'send' else '<-'}{other}"
        with self._record_message(message), self.range(note, annotation=True, on_gpu=True):
            self.think(3000)
            self.launch(self._exchange_kernel(call, self._choose_stream(stream)))
        return stream

    def _pair_messages(self, parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return messages in an order in which no pair of neighbours waits for each other.

        Megatron's: even stages send onward first, odd ones receive from behind first, and so back.
        """
        even = [("send", 1), ("recv", -1), ("recv", 1), ("send", -1)]
        odd = [("recv", -1), ("send", 1), ("send", -1), ("recv", 1)]
        order = odd if self.stage.number % 2 else even
        return [part for part in order if part in parts]

    def _next_exchange(self, group: str) -> int:
        sequence = self.program.exchanges.get(group, 0)
        self.program.exchanges[group] = sequence + 1
        return sequence

    @contextmanager
    def _record_message(self, message: RankMessage) -> Iterator[None]:
        """Run the block in the operator that c10d records for a message."""
        shape = Tensors(((message.elements,),))
        called = build_operator_inputs(self.config.element_type, shape)
        name = "c10d::send" if message.kind == "send" else "c10d::recv_"
        with (
            self.range(name, inputs=called),
            self.range("record_param_comms", collective=message),
        ):
            yield

    def _build_message(
        self, kind: str, shift: int, group: str, elements: int, sequence: int
    ) -> RankMessage:
        size = self.config.element_bytes
        near = self.times.message(elements * size, far=False)
        far = self.times.message(elements * size, far=True)
        key = kind, group, shift % self.groups[group].size
        number = self.program.messages.get(key, 0)
        self.program.messages[key] = number + 1
        return RankMessage(kind, group, shift, elements, size, near, far, number, sequence)

    def _exchange_kernel(self, call: Exchange, stream: int) -> Activity:
        amd = self.config.device.vendor == "amd"
        name = "ncclDevKernel_Generic_4" if amd else _KERNELS["all_to_all"]
        return Activity(
            name + "(ncclDevKernelArgsStorage<4096ul>)",
            "comm",
            stream,
            0,
            grid=(8, 1, 1),
            block=(512, 1, 1),
            registers=96,
            shared_bytes=82240,
            call="cudaLaunchKernelExC",
            exchange=call,
        )

    def _choose_stream(self, stream: int) -> int:
        """Return the stream used: synchronous collectives have none of their own."""
        own = stream in (GATHER, REDUCE, REPLICATE, CONTEXT, ONWARD, BACK)
        return COMPUTE if own and self.config.synchronous else stream

    def _build_kernel(self, call: Collective, stream: int) -> Activity:
        if self.config.custom_all_reduce and call.kind == "all_reduce":
            return self._custom_all_reduce(call, stream)
        element = "f32" if call.element_bytes == 4 else "bf16"
        name = _KERNELS[call.kind].format(element, call.algorithm)
        if self.config.device.vendor == "amd":
            name = "ncclDevKernel_Generic_4"  # RCCL has one for all
        return Activity(
            name + "(ncclDevKernelArgsStorage<4096ul>)",
            "comm",
            stream,
            call.transfer_ns,
            grid=(24, 1, 1),
            block=(512, 1, 1),
            registers=96,
            shared_bytes=82240,
            call="cudaLaunchKernelExC",
            collective=call,
        )
