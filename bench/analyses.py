"""How long the analyses take on parsed tables, and that their cost grows linearly.

    python bench/analyses.py [TRACE] [--events 100000 1000000 10000000] [--folder JOB …]
                             [--simulated 2 16]

Prints one JSON object. `summary`: all of `htk summary` on TRACE (default: the OWLv2 trace of the
reference set), parsed already, beside HTA's temporal, overlap, kernel and idle breakdown of the
same file, loaded already. `analyses`: seconds of every analysis on made-up tables of one rank, for
each number of events, with what it shares with others (links, idle causes, …) counted apart, and
the most memory that the process held meanwhile, the tables included. `jobs`: the same of recorded
or simulated jobs, for what needs several ranks; --simulated N simulates one of N steps. `growth`:
the power of the number of events by which the cost of the slower ones grows, from the smallest to
the largest: 1 is linear. `slowest_s` and `most_mb` are what a limit would be held against.
"""

import argparse
import contextlib
import gc
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from htk.analyses import ANALYSES, find_analysis
from htk.base.columns.arrow import build_numbers, build_table, decode_texts
from htk.base.errors import HtkError
from htk.base.schema import DERIVED, TABLES
from htk.base.spread.memory import release_free_memory
from htk.quantities.derived.registry import find_maker
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.summary import reach_verdict

ROOT = Path(__file__).parents[1]
DEFAULT = "traces/tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
ORIGIN, EACH_NS, STEPS = 10**18, 10_000, 200
_OPERATORS = [f"aten::op{k}" for k in range(180)] + [f"aten::{n}" for n in ("mm", "add") * 10]
_SHAPES = [f"[[{k},64],[64,32]]" for k in range(1, 51)]
_LONG_ENOUGH_S = 0.1
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--events", nargs="*", type=int, default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--folder", nargs="*", type=Path, default=[], help="jobs, small to large")
    parser.add_argument("--simulated", nargs="*", type=int, default=[], help="steps, few to many")
    args = parser.parse_args()
    shared = Path(os.environ.get("HTK_SHARED", ROOT.parent / "shared"))
    trace = args.trace or shared / DEFAULT
    results: dict[str, Any] = {"summary": of_summary(trace)} if trace.exists() else {}
    by_events = {n: of_analyses(_MadeUp(made_up(n))) for n in args.events}
    jobs = dict(of_job(folder) for folder in args.folder)
    with tempfile.TemporaryDirectory() as scratch:
        jobs |= dict(of_job(simulated(steps, Path(scratch))) for steps in args.simulated)
    for title, parts in (("analyses", by_events), ("jobs", jobs)):
        results[title] = {f"{n} events": part for n, part in parts.items()}
        results[f"growth_of_{title}"] = growth(parts)
    print(json.dumps(results, indent=1))


def of_summary(path: Path) -> dict[str, float]:
    """Seconds of the verdict, everything between it and the parsed tables included."""
    trace = open_trace(path, OpenOptions(cache=False))
    times = {"htk_s": seconds(lambda: reach_verdict(trace))}
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        return times
    with contextlib.redirect_stdout(sys.stderr):
        loaded = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))

    def theirs() -> None:
        loaded.get_temporal_breakdown(visualize=False)
        loaded.get_comm_comp_overlap(visualize=False)
        loaded.get_gpu_kernel_breakdown(visualize=False)
        loaded.get_idle_time_breakdown(visualize=False)

    times["hta_s"] = seconds(theirs)
    return times


def simulated(steps: int, scratch: Path) -> Path:
    """Write the traces of so many steps of experts spread over eight ranks."""
    folder = scratch / str(steps)
    words = ["--experts", "8", "--expert-parallel", "4", "--strategy", "ddp", "--layers", "8"]
    words += ["--nodes", "2", "--gpus-per-node", "4", "--steps", str(steps), "-o", str(folder)]
    command = [sys.executable, "-m", "htk", "simulate", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def of_job(folder: Path) -> tuple[int, dict[str, Any]]:
    """Events of a job, and what each analysis of it costs, links and matches counted apart."""
    trace = open_trace(folder)
    shared = {name: seconds(lambda name=name: trace.tables[name]) for name in DERIVED}
    times = of_analyses(_Job(trace.tables))
    times["shared_s"] = shared
    return sum(trace.tables["ranks"]["events"].to_pylist()), times


def of_analyses(job: "_Job") -> dict[str, Any]:
    """Seconds and memory of each analysis and of each table that is made for several."""
    release_free_memory()  # what is free since larger tables were gone
    for name in ANALYSES:
        with contextlib.suppress(HtkError):  # these tables do not hold what it needs
            job.answer(name)
    times, memory = job.seconds | job.shared, job.memory
    return {
        "analyses_s": job.seconds,
        "shared_s": job.shared,
        "peak_mb": memory,
        "slowest_s": max(times.items(), key=lambda item: item[1], default=None),
        "most_mb": max(memory.items(), key=lambda item: item[1], default=None),
    }


def growth(parts: dict[int, dict[str, Any]]) -> dict[str, float]:
    """By what power of the number of events each cost grows, of those that take long enough."""
    few, many = min(parts, default=0), max(parts, default=0)
    if few == many:
        return {}
    by_name = [parts[n]["analyses_s"] | parts[n]["shared_s"] for n in (few, many)]
    return {
        name: round(math.log(late / max(by_name[0][name], 1e-3)) / math.log(many / few), 2)
        for name, late in by_name[1].items()
        if late > _LONG_ENOUGH_S and name in by_name[0]
    }


class _Job:
    """Tables of a trace, answers kept for what reads them, and what each cost."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self._answers: dict[str, pa.Table] = {}
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self.shared: dict[str, float] = {}

    def answer(self, name: str) -> pa.Table:
        if name not in self._answers:
            analysis = find_analysis(name)
            for need in analysis.needs:
                if not self.table(need).num_rows:
                    raise HtkError(need)
            reads = [self.table(read) for read in analysis.reads]

            def ask() -> None:
                self._answers[name] = analysis(*reads)

            self.seconds[name], self.memory[name] = measured(ask)
        return self._answers[name]

    def table(self, name: str) -> pa.Table:
        return self.answer(name) if name in ANALYSES else self._tables[name]


class _MadeUp(_Job):
    """Made-up tables of one rank; what is derived from them is made here, and timed."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        super().__init__(tables)
        self._made = tables

    def table(self, name: str) -> pa.Table:
        if name not in ANALYSES and name not in self._made:
            self._make(name)
        return super().table(name)

    def _make(self, name: str) -> None:
        if name in TABLES:
            self._made[name] = TABLES[name].empty_table()
            return
        maker_ = find_maker(name)
        reads = [self.table(read) for read in maker_.reads]

        def make() -> None:
            derived = maker_.function(*reads)
            columns = {f: derived[f] for f in derived.column_names}
            columns |= _who(derived.num_rows)
            self._made[name] = build_table(DERIVED[name], columns, derived.num_rows)

        self.shared[name], self.memory[name] = measured(make)


def made_up(events: int) -> dict[str, pa.Table]:
    """A rank: for each kernel a call, three nested operators, three Python calls."""
    count, dice = events // 8, np.random.default_rng(0)
    call_start = ORIGIN + np.arange(count) * EACH_NS
    thread = np.arange(count) // 1000 % 2
    length = EACH_NS * count // STEPS
    steps = ORIGIN + np.arange(STEPS) * length
    call = call_start + dice.integers(0, 5000, count)
    begin = np.maximum.accumulate(call + dice.integers(4000, 30_000, count))
    kernel = dice.integers(0, 301, count)
    outer = np.repeat(call_start, 3) - 3000 + np.tile([0, 100, 200], count)
    inner = np.repeat(call_start, 3) + 6500 - np.tile([0, 200, 500], count)
    many = np.repeat(thread, 3)
    comm = (kernel == 300).astype(np.int64)
    kernels = {
        "event": _int(np.arange(count)),
        "stream": _int(np.where(comm, 20, 7)),
        "name": decode_texts(
            kernel, pa.array([*(f"kernel_{k}" for k in range(300)), "ncclDevKernel_X"])
        ),
        "activity": decode_texts(np.zeros(count), pa.array(["kernel"])),
        "kind": decode_texts(comm, pa.array(["compute", "comm"])),
        "family": decode_texts(comm, pa.array(["gemm", "communication"])),
        "correlation": _int(np.arange(1, count + 1)),
    }
    python = [f"model.py({k}): forward" for k in range(500)]
    return {
        "kernels": _spans("kernels", begin, begin + dice.integers(1000, 9000, count), **kernels),
        "launches": _spans(
            "launches", call, call + 3000, thread, ["cudaLaunchKernel"], correlation=_int(
                np.arange(1, count + 1)
            )
        ),
        "cpu_ops": _spans(
            "cpu_ops", outer, inner, many, _OPERATORS,
            sequence=_int(np.arange(3 * count)),
            input_dims=decode_texts(np.arange(3 * count) % 50, pa.array(_SHAPES)),
            input_types=decode_texts(np.zeros(3 * count), pa.array(['["float","float"]'])),
        ),
        "python_calls": _spans(
            "python_calls", outer - 50, inner + 50, many, python, python_id=_int(
                np.arange(3 * count)
            )
        ),
        "memory": build_table(TABLES["memory"], {
            **_who(count),
            "name": decode_texts(np.zeros(count), pa.array(["[memory]"])),
            "process": decode_texts(np.zeros(count), pa.array(["1"])),
            "thread": decode_texts(thread, pa.array(["1", "2"])),
            "device_type": build_numbers(np.ones(count), pa.int32()),
            "event": _int(np.arange(count)),
            "time_ns": _int(call_start),
            "address": decode_texts(
                np.arange(count) // 2 % 5000, pa.array([str(k) for k in range(5000)])
            ),
            "size_bytes": _int(np.where(np.arange(count) % 2, -512, 512)),
            "allocated_bytes": _int(np.where(np.arange(count) % 2, 0, 512)),
            "reserved_bytes": _int(np.full(count, 4096)),
        }, count),
        "annotations": _spans(
            "annotations", steps, steps + length, np.zeros(STEPS), ["ProfilerStep#"],
            step=build_numbers(np.arange(STEPS), pa.int32()),
        ),
    }  # fmt: skip


def _spans(
    table: str,
    start: Any,
    end: Any,
    thread: Any = None,
    names: list[str] | None = None,
    **columns: pa.Array,
) -> pa.Table:
    count = len(start)
    values = {"start_ns": _int(start), "end_ns": _int(end), **_who(count), **columns}
    if names is not None:
        values["name"] = decode_texts(np.arange(count) % len(names), pa.array(names))
        values["process"] = decode_texts(np.zeros(count), pa.array(["1"]))
        values["thread"] = decode_texts(thread, pa.array(["1", "2"]))
    return build_table(TABLES[table], values, count)


def _who(count: int) -> dict[str, pa.Array]:
    return {
        name: build_numbers(np.zeros(count), pa.int32()) for name in ("rank", "cycle", "device")
    }


def _int(values: Any) -> pa.Array:
    return build_numbers(values, pa.int64())


def seconds(what: Callable[[], Any]) -> float:
    began = time.process_time()
    what()
    return round(time.process_time() - began, 4)


def measured(what: Callable[[], Any]) -> tuple[float, int]:
    """Seconds, and the most MB that the process held meanwhile."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError):  # elsewhere than on Linux the peak so far counts
        _CLEAR.write_text("5")
    took = seconds(what)
    if _STATUS.exists():
        line = next(ln for ln in _STATUS.read_text().splitlines() if ln.startswith("VmHWM"))
        return took, int(line.split()[1]) // 1024
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
