"""What a program is made of: what the host does, in order, and what it launches."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.recording.simulate.operator_inputs import OperatorInputs
from htk.recording.simulate.splits import Splits


class Do(IntEnum):
    OPEN = 0  # an operator or annotation begins
    CLOSE = 1
    LAUNCH = 2
    RECORD = 3  # an event on a stream
    WAIT = 4  # a stream waits for an event
    SYNC = 5  # the host waits for an event
    THINK = 6  # the host does something that is not recorded
    MEMORY = 7  # the allocator
    NODE = 8  # launched with the graph that the last launch began
    CALL = 9  # a call of the runtime that some ranks make


MAIN = 0
AUTOGRAD = 1
COMPUTE, COPY_IN, GATHER, REDUCE, REPLICATE, CONTEXT = 7, 16, 20, 24, 28, 32  # streams
ONWARD, BACK = (
    36,
    40,
)  # of messages: to the next member of a group, to the one before; batched: ONWARD


@dataclass(frozen=True)
class Range:
    """A recorded range on the host: an operator, or an annotation."""

    name: str
    thread: int
    annotation: bool = False
    inputs: OperatorInputs | None = None  # shapes and values; None: not recorded
    sequence: int = -1  # within the step
    flow: int = 0  # 1: forward, its backward is to come; 2: that backward
    collective: "Collective | RankMessage | None" = None  # of record_param_comms
    on_gpu: bool = False  # the GPU shows it too
    python: bool = False  # a call of Python
    module: int | None = None  # of an nn.Module: its number among those of its class


@dataclass(frozen=True, eq=False)
class Collective:
    """A collective of all groups of one kind."""

    kind: str  # all_gather …
    record: str  # as c10d writes it
    in_elements: int
    out_elements: int
    element_bytes: int
    group: str  # which kind of process group: shard, replicate, tensor
    wire: int  # bytes that a rank sends, the mean over ranks
    transfer_ns: int
    algorithm: str
    sequence: int  # within the step and kind of group
    synchronous: bool
    splits: Splits | None = None  # None: alike

    def elements(self, rank: int) -> tuple[int, int]:
        """Return what goes in and comes out on a rank."""
        if self.splits is None:
            return self.in_elements, self.out_elements
        return self.splits.elements(rank)

    def sent_bytes(self, rank: int) -> int:
        """Return what a rank sends to others."""
        if self.splits is None:
            return self.wire
        return self.element_bytes * int(self.splits.sent_away[rank])


@dataclass(frozen=True)
class RankMessage:
    """What a rank sends to, or receives from, another member of its group."""

    kind: str  # send or recv
    group: str
    shift: int  # of the other end: places on in the group, round its end
    elements: int
    element_bytes: int
    near_ns: int  # to move within a node
    far_ns: int  # to another node
    number: int  # of those from the one to the other, within the step
    sequence: int  # of the call that makes it: of calls with messages in the group, within the step

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes


@dataclass(frozen=True)
class Exchange:
    """The messages of one kernel."""

    messages: tuple[RankMessage, ...]
    batched: bool  # else it is one message, which the kernel's metadata tells
    group: str
    channel: str  # the communicator: of the group, or of the pair

    @property
    def sent_bytes(self) -> int:
        return sum(m.bytes for m in self.messages if m.kind == "send")


@dataclass(frozen=True)
class Activity:
    """What runs on the GPU."""

    name: str
    kind: str  # compute, comm, memory
    stream: int
    ns: int
    category: str = "kernel"
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared_bytes: int = 0
    moved: int = 0
    flops: int = 0
    call: str = "cudaLaunchKernel"
    graph: int = 0  # 0: in none
    node: int = 0  # of that graph
    collective: Collective | None = None
    exchange: Exchange | None = None
    load: tuple[float, ...] = ()  # of each rank, times the mean; empty: as much everywhere


@dataclass(frozen=True, eq=False)
class HostCall:
    """A call of the runtime; without a name it lengthens the launch that follows."""

    name: str  # as CUDA calls it
    why: str  # start_up, allocation
    ns: NDArray[np.int64]  # by rank; 0: not called there
    waits: bool = False  # for all work that the GPU was given
    overhead: str = ""  # what the profiler calls it, where it does


@dataclass(frozen=True)
class StreamEvent:
    number: int
    stream: int


@dataclass
class RankProgram:
    """One step of one rank. All ranks of a stage run the same, so times are arrays over them."""

    do: list[Do] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)  # of the host, ns
    what: list[Any] = field(default_factory=list)
    sequences: int = 0  # autograd's numbers used in a step
    collectives: dict[str, int] = field(default_factory=dict)  # used, by kind of group
    exchanges: dict[str, int] = field(default_factory=dict)  # calls with messages, likewise
    messages: dict[tuple[str, str, int], int] = field(default_factory=dict)  # kind, group, shift
    flops: int = 0  # of the model, without recomputation
    hardware_flops: int = 0

    def add(self, do: Do, cost: int, what: Any = None) -> None:
        self.do.append(do)
        self.cost.append(cost)
        self.what.append(what)
