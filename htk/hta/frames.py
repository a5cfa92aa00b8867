"""A trace's GPU activities as HTA's notebooks know them: a pandas frame for each rank.

Times are microseconds since the first event of any rank that has a length, the profiler's own span
left out as HTA leaves it out, with nanoseconds behind the point. With two profiler steps or more
only what was launched before the last one began is kept, as HTA does unless told otherwise. Rows
stand as they stand in the file.
"""

import re
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.base.columns.arrow import matching, numbers, read_lengths, read_times, truths, valid
from htk.base.columns.intervals import Spans, union
from htk.base.core.extras import require
from htk.base.errors import UnknownRank
from htk.quantities.measures import hta_conventions
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

TYPES = {"compute": "COMPUTATION", "comm": "COMMUNICATION", "memory": "MEMORY"}
PROFILER_SPAN = "Trace"  # the category of the profiler's own span
_MEMORY_TYPE = re.compile(r"Memcpy \w+to\w+|Memset")


@dataclass(frozen=True)
class Frames:
    """What the methods read of a trace."""

    trace: Trace
    include_last_step: bool = False

    def __post_init__(self) -> None:
        """HTA reads one recording of each rank: here the one that most ranks took part in."""
        single = self.trace.of_one_cycle
        if single is not self.trace:
            (cycle,) = single.cycles
            warnings.warn(
                f"{len(self.trace.cycles)} recordings of some ranks: HTA's methods look at cycle "
                f"{cycle}; htk.hta(trace.sel(cycles=[…])) chooses another",
                stacklevel=4,
            )
            object.__setattr__(self, "trace", single)

    @property
    def ranks(self) -> list[int]:
        return self.trace.ranks

    @cached_property
    def gpu(self) -> dict[int, pd.DataFrame]:
        """Kernels, copies and sets of each rank."""
        tables = self.trace.tables
        kernels = tables["kernels"]
        links = tables["kernel_links"]
        rows = kernels.append_column("row", pa.array(np.arange(kernels.num_rows)))
        if self.include_last_step:
            kept = rows.filter(kernels["stream"].is_valid())
        else:
            kept = hta_conventions.kept_kernels(rows, links, tables["annotations"])
            kept = kept.drop_columns(["launch_start_ns"])
        of = numbers(kept["row"])
        for name in ("op_row", "step", "launch_start_ns", "launch_end_ns"):
            kept = kept.append_column(name, links[name].take(pa.array(of)))
        calls = links["launch_row"].take(pa.array(of)).combine_chunks()
        kept = kept.append_column("launch_event", tables["launches"]["event"].take(calls))
        return {rank: self._frame(kept, rank) for rank in self.ranks}

    def of(self, rank: int) -> pd.DataFrame:
        if rank not in self.gpu:
            raise UnknownRank(f"rank {rank} is not among the recorded ranks: {self.ranks}")
        return self.gpu[rank]

    def file_of(self, rank: int) -> TraceFile:
        """Return the file that HTA would have read of a rank."""
        return next(file for file in self.trace.selected_files if (file.rank or 0) == rank)

    def _frame(self, kept: pa.Table, rank: int) -> pd.DataFrame:
        activities = kept.filter(pa.array(numbers(kept["rank"], -1) == rank)).sort_by("event")
        start, end = read_times(activities)
        launched = valid(activities["launch_start_ns"])
        launch = numbers(activities["launch_start_ns"])
        called = numbers(activities["launch_end_ns"])
        frame = pd.DataFrame(
            {
                "index": numbers(activities["event"]),
                "name": activities["name"].to_pylist(),
                "cat": activities["activity"].to_pylist(),
                "ts": self.microseconds(start),
                "dur": (end - start) / 1000,
                "pid": numbers(activities["device"], -1),
                "tid": numbers(activities["stream"], -1),
                "stream": numbers(activities["stream"], -1),
                "correlation": numbers(activities["correlation"], -1),
                "iteration": numbers(activities["step"], -1),
                "kernel_type": [TYPES[kind] for kind in activities["kind"].to_pylist()],
                "memory_bw_gbps": numbers(activities["bandwidth_gbps"], 0.0),
                "launch_index": numbers(activities["launch_event"], -1),
                "launch_ts": np.where(launched, self.microseconds(launch), np.nan),
                "launch_dur": np.where(launched, (called - launch) / 1000, np.nan),
                "op_row": numbers(activities["op_row"], -1),
                "row": numbers(activities["row"]),
            }
        )
        frame["start_ns"] = start
        frame["end_ns"] = end
        return frame

    def microseconds(self, ns: Any) -> Any:
        """Absolute nanoseconds as microseconds since the trace began."""
        return (ns - self.origin_ns) / 1000

    @cached_property
    def origin_ns(self) -> int:
        """The start of the first event with a length, whoever's but the profiler's own span."""
        firsts = []
        for file in self.trace.selected_files:
            events = file.table("events")
            has_length = valid(events["end_ns"]) & valid(events["category"])
            has_length &= ~matching(events["category"], PROFILER_SPAN.__eq__)
            if has_length.any():
                firsts.append(int(numbers(events["start_ns"])[has_length].min()))
        return min(firsts, default=self.trace.origin_ns)

    def all_annotations(self, rank: int, *, on_gpu: bool) -> pd.DataFrame:
        """Return the user ranges of a rank, steps among them, by start."""
        table = self.trace.tables["annotations"]
        chosen = (numbers(table["rank"], -1) == rank) & (truths(table["on_gpu"]) == on_gpu)
        rows = table.filter(pa.array(chosen)).sort_by("start_ns")
        return pd.DataFrame(
            {
                "index": numbers(rows["event"]),
                "name": pd.Series(rows["name"].to_pylist(), dtype=object),
                "step": numbers(rows["step"], -1),
                "ts": self.microseconds(numbers(rows["start_ns"])),
                "dur": read_lengths(rows) / 1000,
                "pid": numbers(rows["device"], -1),
                "tid": numbers(rows["stream"], -1),
                "start_ns": numbers(rows["start_ns"]),
                "end_ns": numbers(rows["end_ns"]),
                "external_id": numbers(rows["external_id"], -1),
            }
        )

    def annotations(self, rank: int, *, on_gpu: bool) -> pd.DataFrame:
        """Return the user ranges of a rank that the choice of steps keeps, by start."""
        frame = self.all_annotations(rank, on_gpu=on_gpu)
        last = self.last_step_start(rank)
        if last is None:
            return frame
        if on_gpu:  # a range on the GPU is kept with the one on the CPU that it copies
            kept = set(self.annotations(rank, on_gpu=False)["external_id"])
            return frame[frame["external_id"].isin(kept | {-1}) & ~(frame["step"] > self.steps[-1])]
        return frame[frame["ts"] < last]

    def last_step_start(self, rank: int) -> float | None:
        """Return when the step that is left out starts on the rank, in microseconds."""
        if self.include_last_step or len(self.steps) == self._all_steps:
            return None
        ranges = self.all_annotations(rank, on_gpu=False)
        starts = ranges[ranges["step"] > self.steps[-1]]["ts"]
        return float(starts.min()) if len(starts) else None

    @cached_property
    def _all_steps(self) -> int:
        numbered = numbers(self.trace.tables["annotations"]["step"], -1)
        return len(np.unique(numbered[numbered >= 0]))

    @cached_property
    def steps(self) -> list[int]:
        """Profiler steps, without the last unless it was asked for."""
        table = self.trace.tables["annotations"]
        numbered = numbers(table["step"], -1)
        steps = sorted({int(step) for step in numbered[numbered >= 0]})
        return steps if self.include_last_step or len(steps) < 2 else steps[:-1]


def spans(frame: pd.DataFrame) -> Spans:
    """Return where at least one row of a frame is."""
    return union(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


def memory_type(name: str) -> str:
    """`Memcpy DtoH (Device -> Pinned)` is a `Memcpy DtoH`."""
    match = _MEMORY_TYPE.match(name)
    return match.group() if match else "Memcpy Unknown"


def short_name(name: str) -> str:
    """Return a kernel's name without template arguments, parameters and return type."""
    if name.startswith(("Memcpy", "Memset", "dma")) or not any(c in name for c in "<("):
        return name
    kept: list[str] = []
    depth = 0
    for c in name.replace("->", ""):
        depth += c in "<("
        if not depth:
            kept.append(c)
        depth -= c in ">)" and depth > 0
    return "".join(kept).rsplit(" ", 1)[-1]


def shown(frame: pd.DataFrame, x: str, y: list[str] | str, title: str) -> None:
    """A bar chart, where a notebook asks for one."""
    require("plot", "a bar chart")
    import plotly.express as px

    px.bar(frame, x=x, y=y, title=title).show()
