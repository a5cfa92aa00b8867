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

from htk.base.columns.arrow import (
    mark_valid,
    match_texts,
    read_booleans,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import Spans, merge_spans
from htk.base.core.extras import require_extra
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
        of = read_numbers(kept["row"])
        for name in ("op_row", "step", "launch_start_ns", "launch_end_ns"):
            kept = kept.append_column(name, links[name].take(pa.array(of)))
        calls = links["launch_row"].take(pa.array(of)).combine_chunks()
        kept = kept.append_column("launch_event", tables["launches"]["event"].take(calls))
        return {rank: self._build_frame(kept, rank) for rank in self.ranks}

    def build_frame(self, rank: int) -> pd.DataFrame:
        if rank not in self.gpu:
            raise UnknownRank(f"rank {rank} is not among the recorded ranks: {self.ranks}")
        return self.gpu[rank]

    def file_of(self, rank: int) -> TraceFile:
        """Return the file that HTA would have read of a rank."""
        return next(file for file in self.trace.selected_files if (file.rank or 0) == rank)

    def _build_frame(self, kept: pa.Table, rank: int) -> pd.DataFrame:
        activities = kept.filter(pa.array(read_numbers(kept["rank"], -1) == rank)).sort_by("event")
        start, end = read_times(activities)
        launched = mark_valid(activities["launch_start_ns"])
        launch = read_numbers(activities["launch_start_ns"])
        called = read_numbers(activities["launch_end_ns"])
        frame = pd.DataFrame(
            {
                "index": read_numbers(activities["event"]),
                "name": activities["name"].to_pylist(),
                "cat": activities["activity"].to_pylist(),
                "ts": self.microseconds(start),
                "dur": (end - start) / 1000,
                "pid": read_numbers(activities["device"], -1),
                "tid": read_numbers(activities["stream"], -1),
                "stream": read_numbers(activities["stream"], -1),
                "correlation": read_numbers(activities["correlation"], -1),
                "iteration": read_numbers(activities["step"], -1),
                "kernel_type": [TYPES[kind] for kind in activities["kind"].to_pylist()],
                "memory_bw_gbps": read_numbers(activities["bandwidth_gbps"], 0.0),
                "launch_index": read_numbers(activities["launch_event"], -1),
                "launch_ts": np.where(launched, self.microseconds(launch), np.nan),
                "launch_dur": np.where(launched, (called - launch) / 1000, np.nan),
                "op_row": read_numbers(activities["op_row"], -1),
                "row": read_numbers(activities["row"]),
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
            has_length = mark_valid(events["end_ns"]) & mark_valid(events["category"])
            has_length &= ~match_texts(events["category"], PROFILER_SPAN.__eq__)
            if has_length.any():
                firsts.append(int(read_numbers(events["start_ns"])[has_length].min()))
        return min(firsts, default=self.trace.origin_ns)

    def all_annotations(self, rank: int, *, on_gpu: bool) -> pd.DataFrame:
        """Return the user ranges of a rank, steps among them, by start."""
        table = self.trace.tables["annotations"]
        chosen = (read_numbers(table["rank"], -1) == rank) & (
            read_booleans(table["on_gpu"]) == on_gpu
        )
        rows = table.filter(pa.array(chosen)).sort_by("start_ns")
        return pd.DataFrame(
            {
                "index": read_numbers(rows["event"]),
                "name": pd.Series(rows["name"].to_pylist(), dtype=object),
                "step": read_numbers(rows["step"], -1),
                "ts": self.microseconds(read_numbers(rows["start_ns"])),
                "dur": read_lengths(rows) / 1000,
                "pid": read_numbers(rows["device"], -1),
                "tid": read_numbers(rows["stream"], -1),
                "start_ns": read_numbers(rows["start_ns"]),
                "end_ns": read_numbers(rows["end_ns"]),
                "external_id": read_numbers(rows["external_id"], -1),
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
        numbered = read_numbers(self.trace.tables["annotations"]["step"], -1)
        return len(np.unique(numbered[numbered >= 0]))

    @cached_property
    def steps(self) -> list[int]:
        """Profiler steps, without the last unless it was asked for."""
        table = self.trace.tables["annotations"]
        numbered = read_numbers(table["step"], -1)
        steps = sorted({int(step) for step in numbered[numbered >= 0]})
        return steps if self.include_last_step or len(steps) < 2 else steps[:-1]


def merge_frame_spans(frame: pd.DataFrame) -> Spans:
    """Return where at least one row of a frame is."""
    return merge_spans(frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy())


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


def show_bar_chart(frame: pd.DataFrame, x: str, y: list[str] | str, title: str) -> None:
    """A bar chart, where a notebook asks for one."""
    require_extra("plot", "a bar chart")
    import plotly.express as px

    px.bar(frame, x=x, y=y, title=title).show()
