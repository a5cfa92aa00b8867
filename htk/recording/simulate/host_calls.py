"""Calls of the runtime that a step makes on some ranks: to start up, and for memory.

In the first step of a job the context, streams and communicators are created, modules and kernels
are loaded with their first launches, and the allocator takes memory from the GPU. Later it seldom
does; where memory is full, it gives its unused blocks back first, which waits for the GPU.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from htk.base.columns.types import Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.instructions import COMPUTE, Activity, Do, HostCall, RankProgram
from htk.recording.simulate.plants import Plants

# The calls of a retry, their part of its time, and whether they wait for the GPU.
_RETRY = (
    ("cudaMalloc", 0.05, False),  # fails
    ("cudaFree", 0.35, True),
    ("cudaFree", 0.15, False),
    ("cudaFree", 0.15, False),
    ("cudaMalloc", 0.30, False),
)
_LAZY = "Lazy Function Loading"
_TRIGGERED = "Runtime Triggered Module Loading"
_LIBRARY = ("Cijk", "gemm", "nvjet")  # kernels of the library whose handle is created first


class HostCalls:
    """Adds calls of the runtime to the program of a step."""

    def __init__(self, config: Config, plants: Plants, stage: int = 0) -> None:
        self._config = config
        self._plants = plants
        self._stage = [stage] if stage else []
        usual = np.random.default_rng([config.seed, 57])
        self._growing = float(usual.uniform(0.0, 0.03)) if config.noise else 0.0

    def added(self, program: RankProgram, step: int) -> RankProgram:
        """Return a step's program with its calls; step 0 is the first recorded, -1 before it."""
        if step < 0:
            return program
        seed = [self._config.seed, 53, self._config.run, step, *self._stage]
        chance = np.random.default_rng(seed)
        calls = _Calls(program, self._config.ranks, chance)
        if self._config.starts_up and step == 0:
            calls.start_up()
        else:
            calls.grow(self._growing)
        retries = self._plants.retries(step)
        if retries:
            calls.retry(retries, self._plants.retry_ns())
        return calls.spliced()


class _Calls:
    """Calls by the row of the program that they come before."""

    def __init__(self, program: RankProgram, ranks: int, chance: np.random.Generator) -> None:
        self._program = program
        self._ranks = ranks
        self._chance = chance
        self._before: defaultdict[int, list[HostCall]] = defaultdict(list)
        self._allocations = [
            row
            for row, (do, what) in enumerate(zip(program.do, program.what, strict=True))
            if do == Do.MEMORY and what[0] > 0
        ]

    def grow(self, share: float) -> None:
        """Make one allocation need memory that the allocator lacks, on a share of the ranks."""
        if not self._allocations:
            return
        row = int(self._chance.choice(self._allocations))
        grows = self._chance.random(self._ranks) < share
        if grows.any():
            cost = self._chance.uniform(150e3, 900e3, self._ranks).astype(np.int64)
            self._before[row].append(HostCall("cudaMalloc", "allocation", np.where(grows, cost, 0)))

    def retry(self, times: int, cost: Ints) -> None:
        """Add so many retries of allocations, spread evenly over those of the step."""
        rows = self._allocations or [0]
        for number in range(times):
            row = rows[(2 * number + 1) * len(rows) // (2 * times)]
            apart = np.exp(self._chance.normal(0, 0.1, self._ranks))
            for name, part, waits in _RETRY:
                ns = (part * apart * cost).astype(np.int64)
                self._before[row].append(HostCall(name, "allocation", ns, waits))

    def start_up(self) -> None:
        """Create and load what a job needs, where it first does."""
        self._create(0, "cudaFree", 80, 250)  # initialises the context
        kernels = set[str]()
        streams = {COMPUTE}
        groups = set[str]()
        library = False
        for row, (do, what) in enumerate(zip(self._program.do, self._program.what, strict=True)):
            if do not in (Do.LAUNCH, Do.NODE):
                continue
            activity: Activity = what[0]
            if activity.stream not in streams:
                streams.add(activity.stream)
                self._create(row, "cudaStreamCreateWithPriority", 0.02, 0.08)
            communication = activity.collective or activity.exchange
            if communication and communication.group not in groups:
                groups.add(communication.group)
                self._create(row, "cudaHostAlloc", 2, 8)
                self._create(row, "cudaMalloc", 0.3, 1)
            if activity.name.startswith(_LIBRARY) or "gemm" in activity.name:
                if not library:
                    self._create(row, "cuLibraryLoadData", 15, 60, _TRIGGERED)
                    self._create(row, "cudaMalloc", 0.2, 0.6)  # the handle's workspace
                library = True
            if do == Do.LAUNCH and activity.category == "kernel" and activity.name not in kernels:
                kernels.add(activity.name)
                self._create(row, "", 0.3, 3, _LAZY)
        for row in self._allocations:
            cost = self._chance.uniform(100e3, 500e3, self._ranks).astype(np.int64)
            self._before[row].append(HostCall("cudaMalloc", "allocation", cost))

    def _create(
        self, row: int, name: str, least_ms: float, most_ms: float, overhead: str = ""
    ) -> None:
        """Add a start-up call that takes about as long on all ranks."""
        usual = 1e6 * self._chance.uniform(least_ms, most_ms)
        ns = usual * np.exp(self._chance.normal(0, 0.1, self._ranks))
        call = HostCall(name, "start_up", ns.astype(np.int64), overhead=overhead)
        self._before[row].append(call)

    def spliced(self) -> RankProgram:
        """Return the program with its calls; itself where there are none."""
        if not self._before:
            return self._program
        program = self._program
        longer = replace(program, do=[], cost=[], what=[])
        items = zip(program.do, program.cost, program.what, strict=True)
        for row, (do, cost, what) in enumerate(items):
            for call in self._before.get(row, ()):
                longer.add(Do.CALL, 0, (call, self._find_thread(row)))
            longer.add(do, cost, what)
        return longer

    def _find_thread(self, row: int) -> int:
        """Return the thread of the instruction that makes the call."""
        do = self._program.do[row]
        what = self._program.what[row]
        if do in (Do.OPEN, Do.CLOSE):
            return int(what.thread)
        return 0 if do == Do.THINK else int(what[-1])
