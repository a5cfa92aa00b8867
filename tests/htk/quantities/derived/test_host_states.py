"""What the host does at each time: names by hand, timelines against asking each instant."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.nesting import Threads
from htk.quantities.derived.host_states import (
    ALLOCATION,
    CALL,
    COMPILATION,
    GC,
    LAZY,
    LOADING,
    OPERATOR,
    PROFILER,
    PYTHON,
    START_UP,
    STATES,
    SYNC,
    HostStates,
    call_state,
    call_states,
    overhead_state,
    span_state,
)
from tests.tables import make

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("cudaLaunchKernel", CALL),
        ("cudaEventRecord", CALL),
        ("cudaStreamSynchronize", SYNC),
        ("hipMemcpyAsync", SYNC),  # blocks where host memory is pageable
        ("cudaMemset", SYNC),
        ("cudaMemsetAsync", CALL),
        ("cudaMalloc", ALLOCATION),
        ("hipHostFree", ALLOCATION),
        ("cuModuleLoadData", LAZY),
        ("cuLibraryGetKernel", LAZY),
        ("cudaStreamCreateWithPriority", START_UP),
        ("cuDevicePrimaryCtxRetain", START_UP),
    ],
)
def test_calls_by_their_names(name: str, state: int) -> None:
    assert STATES[call_state(name)] == STATES[state]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("aten::mm", PYTHON),
        ("gc.collect", GC),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", LOADING),
        ("torch/utils/data/dataloader.py(733): __next__", LOADING),
        ("train.py(12): get_batch", LOADING),
        ("train.py(12): get_batches_per_epoch", PYTHON),
        ("torch/_inductor/compile_fx.py(900): compile_fx", COMPILATION),
        ("triton/compiler/compiler.py(240): compile", COMPILATION),
        ("## Call CompiledFxGraph fx7 ##", PYTHON),  # it runs, and compiles nothing
    ],
)
def test_spans_by_their_names(name: str, state: int) -> None:
    assert STATES[span_state(name)] == STATES[state]


def test_overhead_is_the_profilers_own_or_code_being_loaded() -> None:
    assert overhead_state("Buffer Flush") == PROFILER
    assert overhead_state("Lazy Function Loading") == LAZY


def call(name: str, start: int, length: int, process: str = "1", **ran: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": start, "end_ns": start + length, "process": process} | ran


def test_long_first_calls_are_the_runtime_that_begins() -> None:
    launches = [
        call("cudaLaunchKernel", 50, 2 * MS),  # 0: the first of its name in process 1
        call("cudaLaunchKernel", 9 * MS, 2 * MS),  # 1: a later one waits for a busy GPU
        call("cudaLaunchKernel", 60, 2 * MS, "2"),  # 2: the first in another process
        call("cudaMalloc", 70, 2 * MS),  # 3: allocates; a context takes longer
        call("cudaFree", 20 * MS, 60 * MS),  # 4: a context
        call("cudaFuncGetAttributes", 90 * MS, 10_000),  # 5: short
        call("cudaStreamSynchronize", 95 * MS, 9 * MS),  # 6: long as it is, it waits
    ]
    states = call_states(make("launches", launches), make("kernels", []), make("kernel_links", []))
    assert [STATES[s] for s in states.tolist()] == [
        STATES[s] for s in (START_UP, CALL, START_UP, ALLOCATION, START_UP, CALL, SYNC)
    ]


def test_the_first_launch_of_a_kernel_loads_its_code() -> None:
    """Calls of one name: short, long for a new kernel, long for the same, long for another rank."""
    launches = [call("cudaLaunchKernel", k * 10 * MS, 5 * MS if k else 10_000) for k in range(4)]
    kernels = [{"name": n, "rank": r} for n, r in (("a", 0), ("b", 0), ("b", 0), ("b", 1))]
    links = [{"launch_row": k} for k in range(4)]
    states = call_states(
        make("launches", launches), make("kernels", kernels), make("kernel_links", links)
    )
    assert states.tolist() == [CALL, START_UP, CALL, START_UP]


# Thread, what is open, start and length. Two threads; overheads are tied to none.
KINDS = {
    "overheads": (("Buffer Flush", PROFILER), ("Lazy Function Loading", LAZY)),
    "cpu_ops": (("aten::mm", OPERATOR), ("gc.collect", GC)),
    "launches": (("cudaMalloc", ALLOCATION), ("cudaStreamSynchronize", SYNC)),
    "annotations": (("next_batch", LOADING), ("forward", PYTHON)),
    "python_calls": (("recompile", COMPILATION), ("f", PYTHON)),
}
SPANS = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(sorted(KINDS)), st.integers(0, 1), st.integers(0, 30),
        st.integers(0, 9),
    ),
    max_size=14,
)  # fmt: skip


@given(SPANS)
def test_timelines_as_at_each_instant(spans: list[tuple[int, str, int, int, int]]) -> None:
    """Of several states the first one counts; where a thread has none, the main thread's."""
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    rows["annotations"].append({
        "name": "ProfilerStep#1", "step": 1, "on_gpu": False, "start_ns": 0, "end_ns": 0,
        "process": "1", "thread": "0",
    })  # fmt: skip
    for thread, kind, which, start, length in spans:
        rows[kind].append({
            "name": KINDS[kind][which][0], "start_ns": start, "end_ns": start + length,
            "process": "1", "thread": str(thread),
        } | ({"on_gpu": False} if kind == "annotations" else {}))  # fmt: skip
    tables = {kind: make(kind, of_kind) for kind, of_kind in rows.items()}
    threads = Threads()
    numbers = threads.number_threads(
        make("launches", [{"process": "1", "thread": t} for t in "01"])
    ).tolist()
    calls = np.array([call_state(r["name"]) for r in rows["launches"]], np.int64)
    states = HostStates.from_tables(
        calls, *(tables[k] for k in ("launches", "cpu_ops", "annotations", "python_calls")),
        tables["overheads"], threads,
    )  # fmt: skip
    assert states.main.tolist() == [numbers[0]], "the thread that steps"

    def state_at(thread: int, instant: int) -> int:
        """Which state holds from this instant to the next."""
        for own in dict.fromkeys((thread, 0)):
            open_states = [
                KINDS[kind][which][1]
                for t, kind, which, start, length in spans
                if start <= instant < start + length and (t == own or kind == "overheads")
            ]
            if min(open_states, default=PYTHON) != PYTHON:
                return min(open_states)
        return PYTHON

    for thread in (0, 1):
        line = states.timeline(np.array([numbers[thread]]))
        assert (line.start[1:] == line.end[:-1]).all()
        row = np.searchsorted(line.start, np.arange(40), side="right") - 1
        assert line.state[row].tolist() == [state_at(thread, t) for t in range(40)]
