"""How long the analyses take on parsed tables, and that their cost grows linearly.

    python bench/analyses.py [TRACE] [--events 100000 1000000 10000000]

Prints one JSON object. `summary`: all of `htk summary` on TRACE (default: the OWLv2 trace of the
reference set), parsed already, beside HTA's temporal, overlap, kernel and idle breakdown of the
same file, loaded already. `analyses`: seconds of every analysis on made-up tables of one rank, for
each number of events, with what it shares with others (links, idle causes, …) counted apart.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from htk import api
from htk.analyses import ANALYSES, find
from htk.arrow import build, number, text
from htk.derive import maker
from htk.errors import HtkError
from htk.schema import DERIVED, TABLES
from htk.summary import verdict

ROOT = Path(__file__).parents[1]
DEFAULT = "traces/tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
ORIGIN, EACH_NS, STEPS = 10**18, 10_000, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--events", nargs="*", type=int, default=[100_000, 1_000_000, 10_000_000])
    args = parser.parse_args()
    shared = Path(os.environ.get("HTK_SHARED", ROOT.parent / "shared"))
    trace = args.trace or shared / DEFAULT
    found: dict[str, Any] = {"summary": of_summary(trace)} if trace.exists() else {}
    found["analyses"] = {str(n): of_analyses(n) for n in args.events}
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(found, indent=1))


def of_summary(path: Path) -> dict[str, float]:
    """Seconds of the verdict, everything between it and the parsed tables included."""
    trace = api.open(path, cache=False)
    found = {"htk_s": seconds(lambda: verdict(trace))}
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        return found
    with contextlib.redirect_stdout(sys.stderr):
        loaded = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))

    def theirs() -> None:
        loaded.get_temporal_breakdown(visualize=False)
        loaded.get_comm_comp_overlap(visualize=False)
        loaded.get_gpu_kernel_breakdown(visualize=False)
        loaded.get_idle_time_breakdown(visualize=False)

    found["hta_s"] = seconds(theirs)
    return found


def of_analyses(events: int) -> dict[str, Any]:
    """Seconds of each analysis and of each table that is made for several."""
    job = _Job(made_up(events))
    found: dict[str, Any] = {}
    for name in ANALYSES:
        try:
            found[name] = job.seconds_of(name)
        except HtkError:  # these tables do not hold what it needs
            continue
    return {"analyses_s": found, "shared_s": job.shared}


class _Job:
    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self._tables = tables
        self._answers: dict[str, pa.Table] = {}
        self.shared: dict[str, float] = {}

    def seconds_of(self, name: str) -> float:
        analysis = find(name)
        for need in analysis.needs:
            if not self.table(need).num_rows:
                raise HtkError(need)
        reads = [self.table(read) for read in analysis.reads]

        def ask() -> None:
            self._answers[name] = analysis(*reads)

        return seconds(ask)

    def table(self, name: str) -> pa.Table:
        if name in ANALYSES:
            if name not in self._answers:
                self.seconds_of(name)
            return self._answers[name]
        if name not in self._tables:
            self._make(name)
        return self._tables[name]

    def _make(self, name: str) -> None:
        if name in TABLES:
            self._tables[name] = TABLES[name].empty_table()
            return
        made = maker(name)
        reads = [self.table(read) for read in made.reads]

        def make() -> None:
            found = made.function(*reads)
            columns = {f: found[f] for f in found.column_names}
            columns |= _who(found.num_rows)
            self._tables[name] = build(DERIVED[name], columns, found.num_rows)

        self.shared[name] = seconds(make)


def made_up(events: int) -> dict[str, pa.Table]:
    """A rank: for each kernel a call, three nested operators, three Python calls."""
    count, dice = events // 8, np.random.default_rng(0)
    at = ORIGIN + np.arange(count) * EACH_NS
    thread = np.arange(count) // 1000 % 2
    length = EACH_NS * count // STEPS
    steps = ORIGIN + np.arange(STEPS) * length
    call = at + dice.integers(0, 5000, count)
    begin = np.maximum.accumulate(call + dice.integers(4000, 30_000, count))
    kernel = dice.integers(0, 301, count)
    outer = np.repeat(at, 3) - 3000 + np.tile([0, 100, 200], count)
    inner = np.repeat(at, 3) + 6500 - np.tile([0, 200, 500], count)
    many = np.repeat(thread, 3)
    comm = (kernel == 300).astype(np.int64)
    kernels = {
        "event": _int(np.arange(count)),
        "stream": _int(np.where(comm, 20, 7)),
        "name": text(kernel, pa.array([*(f"kernel_{k}" for k in range(300)), "ncclDevKernel_X"])),
        "activity": text(np.zeros(count), pa.array(["kernel"])),
        "kind": text(comm, pa.array(["compute", "comm"])),
        "family": text(comm, pa.array(["gemm", "communication"])),
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
            "cpu_ops", outer, inner, many, [f"aten::op{k}" for k in range(200)],
            sequence=_int(np.arange(3 * count)),
        ),
        "python_calls": _spans(
            "python_calls", outer - 50, inner + 50, many, python, python_id=_int(
                np.arange(3 * count)
            )
        ),
        "annotations": _spans(
            "annotations", steps, steps + length, np.zeros(STEPS), ["ProfilerStep#"],
            step=number(np.arange(STEPS), pa.int32()),
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
    made = {"start_ns": _int(start), "end_ns": _int(end), **_who(count), **columns}
    if names is not None:
        made["name"] = text(np.arange(count) % len(names), pa.array(names))
        made["process"] = text(np.zeros(count), pa.array(["1"]))
        made["thread"] = text(thread, pa.array(["1", "2"]))
    return build(TABLES[table], made, count)


def _who(count: int) -> dict[str, pa.Array]:
    return {name: number(np.zeros(count), pa.int32()) for name in ("rank", "cycle", "device")}


def _int(values: Any) -> pa.Array:
    return number(values, pa.int64())


def seconds(what: Callable[[], Any]) -> float:
    began = time.perf_counter()
    what()
    return round(time.perf_counter() - began, 4)


if __name__ == "__main__":
    main()
