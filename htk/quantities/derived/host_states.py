"""The host's state at each time, thread by thread: told from names, decided once."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    read_booleans,
    read_keys,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, merge_spans, sweep_spans
from htk.base.columns.nesting import FILE, Threads, files_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, Mask

# In the order of precedence: of several that hold at once the first one names the time.
(
    PROFILER,
    GC,
    COMPILATION,
    START_UP,
    LAZY,
    ALLOCATION,
    SYNC,
    LOADING,
    SYSTEM,
    OPERATOR,
    CALL,
    PYTHON,
) = range(12)
STATES = (
    "profiler_overhead",
    "host_gc",
    "host_compilation",
    "host_start_up",
    "host_lazy_loading",
    "host_allocation",
    "host_sync",
    "host_data_loading",
    "host_system_call",
    "host_operator",
    "host_runtime_call",
    "host_python",
)
OF_SYSTEM = "os_runtime"  # api of calls of the operating system: poll, read, pthread_cond_wait, …
_ANYWHERE = -1  # not tied to a thread
_FOREVER = 1 << 62
_NOTHING = Spans(np.empty(0, np.int64), np.empty(0, np.int64))

# Calls of CUDA and HIP, runtime and driver.
_BLOCKING = re.compile(r"Synchronize|Memcpy(?!.*Async)|Memset(?!.*Async)")
_MAYBE_BLOCKING = re.compile(r"Memcpy.*Async")  # blocks where host memory is pageable
_ALLOCATION = re.compile(
    r"^(cuda|hip)(Host)?(Malloc|Free|HostAlloc|MallocHost|FreeHost|MallocAsync|FreeAsync)"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|HostAlloc)|^hipHost(Malloc|Free)|^cudaHost(Alloc|Reg)"
)
_START_UP = re.compile(r"Create|^cuInit$|CtxCreate|PrimaryCtxRetain|^(cuda|hip)SetDevice$")
# Calls that begin the runtime or load code where they are the first of their name, and take long.
_FIRST_USE = re.compile(
    r"^(cuda|hip|cu)\w*(Launch\w*Kernel|Free$|Malloc$|FuncGetAttributes|Occupancy)"
)
_FIRST_LAUNCH_NS = 1_000_000  # any later one takes microseconds, or waits for a GPU that is busy
_CONTEXT_NS = 50_000_000  # a context takes tens to hundreds of ms; no allocation does
_LAZY = re.compile(
    r"Module(Load|GetFunction)|Library(Load|GetKernel)|GetFuncBySymbol"
    r"|Lazy Function Loading|Triggered Module Loading"
)
# torch 2.x: names of torch._dynamo, Inductor and Triton while they compile, not while they run.
_COMPILATION = re.compile(
    r"\(dynamo_timed\)|convert_frame\.py\(\d+\): _?compile|_inductor/compile_fx\.py"
    r"|triton/compiler/\w+\.py\(\d+\): (compile|make_\w+|parse)$|jit\.py\(\d+\): _do_compile"
    r"|async_compile\.py|nvrtc|^compile$|recompil"
)
_GC = re.compile(r"^gc\b|gc\.collect|Python GC|garbage|<built-in \w+ collect>|^gc:")
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|dataloader\.py\(\d+\): (__next__|_next_data)"
    r"|\b(next|get|load|fetch)_?batch\b|^data_?load",
    re.IGNORECASE,
)


@lru_cache(maxsize=100_000)  # ranks have most names in common
def call_state(name: str) -> int:
    """Return what a runtime or driver call does; CALL: nothing but to launch, record or ask, which
    is its operator's time where it has one."""
    if _ALLOCATION.search(name):
        return ALLOCATION
    if _LAZY.search(name):
        return LAZY
    if _START_UP.search(name):
        return START_UP
    if _BLOCKING.search(name) or _MAYBE_BLOCKING.search(name):
        return SYNC
    return CALL


@lru_cache(maxsize=100_000)
def _may_begin(name: str) -> bool:
    """Return whether a call of that name begins the runtime or loads code where it is the first."""
    return _FIRST_USE.search(name) is not None


def call_states(launches: pa.Table, kernels: pa.Table, kernel_links: pa.Table) -> Ints:
    """Return what each call does: by its name, or start-up where it is the first of its name, or
    launches the first kernel of a name, and takes as long as only a context or code being loaded
    does."""
    state = _code_states(launches, call_state)
    state[match_texts(launches["api"], OF_SYSTEM.__eq__)] = SYSTEM
    state[_first_launches(launches, kernels, kernel_links, state)] = START_UP
    codes, names = codes_of(launches["name"])
    may_begin = np.array([*map(_may_begin, names.to_pylist()), False], bool)
    rows = np.flatnonzero(may_begin[codes])
    if not len(rows):
        return state
    length = read_lengths(launches)
    first = rows[_first_calls(launches, rows)]
    least = np.where(state[first] == ALLOCATION, _CONTEXT_NS, _FIRST_LAUNCH_NS)
    state[first[length[first] >= least]] = START_UP
    return state


def _first_launches(
    launches: pa.Table, kernels: pa.Table, kernel_links: pa.Table, state: Ints
) -> Ints:
    """Return the long launches of kernels that no launch before was of: their code is loaded."""
    row = read_numbers(kernel_links["launch_row"], NONE)
    linked = np.flatnonzero(row != NONE)
    columns = [codes_of(kernels["name"])[0][linked].astype(np.int64)]
    for name in ("rank", "cycle", FILE):  # which the tables of one file lack
        if name in kernels.column_names:
            columns.append(read_keys(kernels[name])[linked])
    begin, end = read_times(launches)
    order = order_by(begin[row[linked]])
    named = Groups.by_keys([column[order] for column in columns])
    first = row[linked[order[named.first_row]]]
    slow: Mask = (end - begin)[first] >= _FIRST_LAUNCH_NS
    return np.asarray(first[slow & (state[first] == CALL)])


def _first_calls(launches: pa.Table, rows: Ints) -> Ints:
    """Return the places, among the rows, of the first call of each name in each process."""
    columns: list[Ints] = [
        codes_of(launches[c])[0][rows].astype(np.int64) for c in ("process", "name")
    ]
    for name in ("rank", "cycle"):  # which the tables of one file lack
        if name in launches.column_names:
            columns.append(read_keys(launches[name])[rows])
    order = order_by(read_numbers(launches["start_ns"])[rows])
    return np.asarray(order[Groups.by_keys([column[order] for column in columns]).first_row])


@lru_cache(maxsize=100_000)
def span_state(name: str) -> int:
    """Return what an operator, range or Python call of that name tells (PYTHON: nothing)."""
    if _GC.search(name):
        return GC
    if _COMPILATION.search(name):
        return COMPILATION
    return LOADING if _LOADING.search(name) else PYTHON


def overhead_state(name: str) -> int:
    """Return what the profiler calls overhead: its own work, or CUDA loading code."""
    return LAZY if _LAZY.search(name) else PROFILER


@dataclass(frozen=True)
class StateTimeline:
    """Segments one behind the other, without holes, and the state in each."""

    start: Ints
    end: Ints
    state: Ints


@dataclass(frozen=True)
class HostStates:
    """Spans of all threads of a process by state, or of those of several files."""

    thread: Ints
    file: Ints
    start: Ints
    end: Ints
    state: Ints
    file_of_thread: Ints
    main: Ints  # of each file, the thread that steps, else the one that launches most

    @classmethod
    def from_tables(
        cls,
        calls: Ints,
        launches: pa.Table,
        cpu_ops: pa.Table,
        annotations: pa.Table,
        python_calls: pa.Table,
        overheads: pa.Table,
        threads: Threads,
    ) -> "HostStates":
        """Collect the spans of a process by state; `calls` is what each row of `launches` does."""
        ops = _code_states(cpu_ops, span_state)
        ranges = _code_states(annotations, span_state)
        python = _code_states(python_calls, span_state)
        cost = _code_states(overheads, overhead_state)
        on_cpu = ~read_booleans(annotations["on_gpu"])
        parts = [
            (launches, calls, np.ones(len(calls), bool)),
            (cpu_ops, np.where(ops == PYTHON, OPERATOR, ops), np.ones(len(ops), bool)),
            (annotations, ranges, on_cpu & (ranges != PYTHON)),
            (python_calls, python, python != PYTHON),
        ]
        thread_parts = [np.full(len(cost), _ANYWHERE, np.int64)]
        starts = [read_numbers(overheads["start_ns"])]
        ends = [read_numbers(overheads["end_ns"])]
        states = [cost]
        files = [files_of(overheads)]
        for table, state, chosen in parts:
            rows = np.flatnonzero(chosen)
            thread_parts.append(threads.number_threads(table)[rows].astype(np.int64))
            files.append(files_of(table)[rows])
            starts.append(read_numbers(table["start_ns"])[rows])
            ends.append(read_numbers(table["end_ns"])[rows])
            states.append(state[rows])
        return cls(
            np.concatenate(thread_parts),
            np.concatenate(files),
            np.concatenate(starts),
            np.concatenate(ends),
            np.concatenate(states),
            threads.file,
            _main_threads(annotations, launches, threads),
        )

    def timeline(self, threads: Ints) -> StateTimeline:
        """Return the states of a thread, where it has nothing open those of the main thread; or of
        one thread of each of several files, whose times do not overlap."""
        main = self.main[self.file_of_thread[threads]]
        other = main != threads
        own = self._list_sets(threads, self.file_of_thread[threads])
        fallback = self._list_sets(main[other], self.file_of_thread[threads[other]])
        always = Spans(np.array([-_FOREVER], np.int64), np.array([_FOREVER], np.int64))
        swept = sweep_spans([*own, *fallback, always])
        lowest = np.log2(swept.on & -swept.on).astype(np.int64)
        state = np.array([*range(PYTHON)] * 2 + [PYTHON], np.int64)[lowest]
        first = mark_heads(state)  # what the main thread does, and then the other one too, is one
        start = swept.start[first]
        return StateTimeline(start, np.append(start[1:], swept.end[-1:]), state[first])

    def anywhere(self, state: int) -> Spans:
        """Return the spans in which any thread is in that state."""
        rows = self.state == state
        return merge_spans(self.start[rows], self.end[rows])

    def _list_sets(self, threads: Ints, files: Ints) -> Sequence[Spans]:
        """Return the spans by state of some threads, and of what is tied to none in their files."""
        sets = [_NOTHING] * PYTHON
        if not len(threads):
            return sets
        free = (self.thread == _ANYWHERE) & np.isin(self.file, files)
        rows = np.flatnonzero(np.isin(self.thread, threads) | free)
        state = self.state[rows]
        for held in np.unique(state[state < PYTHON]).tolist():  # few of the states
            own = rows[state == held]
            sets[held] = merge_spans(self.start[own], self.end[own])
        return sets


def _code_states(table: pa.Table, rule: Callable[[str], int]) -> Ints:
    codes, names = codes_of(table["name"])
    states = [rule(name) for name in names.to_pylist()]
    return np.array([*states, PYTHON], np.int64)[codes]


def _main_threads(annotations: pa.Table, launches: pa.Table, threads: Threads) -> Ints:
    """Return the main thread of each file; the earliest of several that step or launch as often."""
    steps = annotations.filter(
        pa.array(mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"]))
    )
    of_gpu = launches.filter(pa.array(~match_texts(launches["api"], OF_SYSTEM.__eq__)))
    candidates = [
        (threads.number_threads(table), read_numbers(table["start_ns"]))
        for table in (of_gpu, steps)
    ]
    file = threads.file
    main = np.full(file.max(initial=0) + 1, _ANYWHERE, np.int64)
    for thread, start in candidates:
        count = np.bincount(thread, minlength=len(file))
        earliest = np.full(len(file), np.iinfo(np.int64).max)
        np.minimum.at(earliest, thread, start)
        order = order_by(file, -count, earliest)
        most = order[mark_heads(file[order])]
        most = most[count[most] > 0]
        main[file[most]] = most
    return main
