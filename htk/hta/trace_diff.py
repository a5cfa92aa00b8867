"""HTA's `TraceDiff`: operators and kernels of two traces by name, their counts and times in us.

Names and categories stand in the frames as text, where HTA has numbers of its symbol table.
"""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from htk.base.core.extras import require_extra
from htk.base.errors import UsageError
from htk.hta.events import read_events
from htk.hta.frames import Frames, short_name
from htk.hta.trace_analysis import TraceAnalysis
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace

Chosen = int | Sequence[int] | None


class DeviceType(Enum):
    CPU = 1
    GPU = 2
    ALL = 3


class LabeledTrace:
    """A trace with the label that its columns carry."""

    def __init__(
        self,
        label: str | None = None,
        t: Trace | TraceAnalysis | None = None,
        trace_dir: str | None = None,
    ) -> None:
        if t is None and trace_dir is None:
            raise UsageError("LabeledTrace: give t, a trace that is open, or trace_dir")
        if isinstance(t, TraceAnalysis):
            t = t.trace
        trace = t if t is not None else open_trace([str(Path(str(trace_dir)).expanduser())])
        frames = Frames(trace, True)
        self.label = label or "trace"
        self._steps = frames.steps
        self._events = {rank: read_events(frames, rank) for rank in frames.ranks}

    def ranks(self) -> list[int]:
        """Return the ranks at hand."""
        return sorted(self._events)

    def iterations(self) -> list[int]:
        """Return the numbers of the profiler steps."""
        return self._steps

    def extract_ops(
        self,
        rank: Chosen = None,
        iteration: Chosen = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> pd.DataFrame:
        """Return the events of ranks and iterations (each: the first) on the CPU, the GPU or both.

        HTA's enum is accepted: a device is taken by its name.
        """
        ranks = _list_chosen(rank, self.ranks(), "rank")
        iterations = _list_chosen(iteration, self.iterations(), "iteration")
        events = pd.concat([self._events[r].assign(rank=r) for r in ranks], ignore_index=True)
        events = events[events["iteration"].isin(iterations)]
        if device_type.name == "ALL":
            return events
        on_gpu = events["stream"] >= 0
        return events[on_gpu if device_type.name == "GPU" else ~on_gpu]

    def get_ops_summary(self, ops: pd.DataFrame) -> pd.DataFrame:
        """Return count and total duration by category and name."""
        named = ops.rename(columns={"s_cat": "cat", "s_name": "name"})
        summary = named.groupby(["cat", "name"])["dur"].agg(["count", "sum"]).reset_index()
        summary = summary.rename(columns={"count": "counts", "sum": "total_duration"})
        summary.insert(2, "short_name", summary["name"].map(short_name))
        return summary


class TraceDiff:
    """Two traces compared by the names of what ran."""

    @classmethod
    def compare_traces(
        cls,
        control: LabeledTrace | Trace | TraceAnalysis | str,
        test: LabeledTrace | Trace | TraceAnalysis | str,
        control_rank: Chosen = None,
        test_rank: Chosen = None,
        control_iteration: Chosen = None,
        test_iteration: Chosen = None,
        device_type: DeviceType = DeviceType.ALL,
        use_short_name: bool = False,
    ) -> pd.DataFrame:
        """Return counts and durations of both traces by name, and what changed."""
        first = _label_trace(control, "Control")
        second = _label_trace(test, "Test")
        after = second.label if second.label != first.label else f"{second.label}_test"
        by = "short_name" if use_short_name else "name"
        columns: dict[str, pd.Series] = {}
        for label, trace, rank, iteration in (
            (first.label, first, control_rank, control_iteration),
            (after, second, test_rank, test_iteration),
        ):
            summary = trace.get_ops_summary(trace.extract_ops(rank, iteration, device_type))
            sums = summary.groupby(by)[["counts", "total_duration"]].sum()
            columns |= {f"{label}_{column}": sums[column] for column in sums.columns}
        compared = pd.DataFrame(columns).fillna(0)
        for name, column in (("diff_counts", "counts"), ("diff_duration", "total_duration")):
            compared[name] = compared[f"{after}_{column}"] - compared[f"{first.label}_{column}"]
        sign = np.sign(compared["diff_counts"])
        compared["counts_change_categories"] = np.select([sign > 0, sign < 0], ["+", "-"], "=")
        return compared

    @classmethod
    def ops_diff(
        cls,
        control: LabeledTrace | Trace | TraceAnalysis | str,
        test: LabeledTrace | Trace | TraceAnalysis | str,
        control_rank: Chosen = None,
        test_rank: Chosen = None,
        control_iteration: Chosen = None,
        test_iteration: Chosen = None,
        device_type: DeviceType = DeviceType.ALL,
    ) -> dict[str, list[str]]:
        """Return the names that were added, deleted, or whose count rose, fell or stayed."""
        compared = cls.compare_traces(
            control, test, control_rank, test_rank, control_iteration, test_iteration, device_type
        )
        before, after = (compared[column] for column in compared.columns[[0, 2]])
        chosen = {
            "added": (before == 0) & (after > 0),
            "deleted": (before > 0) & (after == 0),
            "increased": (before > 0) & (after > before),
            "decreased": (after > 0) & (after < before),
            "unchanged": (after > 0) & (after == before),
        }
        return {change: compared.index[rows].tolist() for change, rows in chosen.items()}

    @classmethod
    def visualize_counts_diff(
        cls, df: pd.DataFrame, show_image: bool = True, export_image_path: str | None = None
    ) -> None:
        """Show the counts of `compare_traces` as bars."""
        _draw_bars(df, "counts", "Ops Count Comparison", show_image, export_image_path)

    @classmethod
    def visualize_duration_diff(
        cls, df: pd.DataFrame, show_image: bool = True, export_image_path: str | None = None
    ) -> None:
        """Show the durations of `compare_traces` as bars."""
        _draw_bars(
            df, "total_duration", "Ops Duration Comparison, us", show_image, export_image_path
        )


def _list_chosen(chosen: Chosen, available: list[int], name: str) -> list[int]:
    """Return the chosen ranks or iterations; the first where none is named."""
    if not available:
        raise UsageError(f"the trace has no {name}")
    if chosen is None:
        return available[:1]
    listed = [chosen] if isinstance(chosen, int) else list(chosen)
    if missing := [value for value in listed if value not in available]:
        raise UsageError(f"{name}={missing[0]}: the trace has {available}")
    return listed


def _label_trace(trace: LabeledTrace | Trace | TraceAnalysis | str, label: str) -> LabeledTrace:
    if isinstance(trace, LabeledTrace):
        return trace
    if isinstance(trace, Trace | TraceAnalysis):
        return LabeledTrace(label, t=trace)
    return LabeledTrace(label, trace_dir=str(trace))


def _draw_bars(
    compared: pd.DataFrame, column: str, title: str, show: bool, path: str | None
) -> None:
    require_extra("plot", "a bar chart")
    import plotly.graph_objects as go

    shown = [c for c in compared.columns if str(c).endswith(f"_{column}")]
    difference: Any = compared["diff_counts" if column == "counts" else "diff_duration"]
    bars = [
        *(
            go.Bar(name=str(c).removesuffix(f"_{column}"), x=compared.index, y=compared[c])
            for c in shown
        ),
        go.Bar(name="Difference", x=compared.index, y=difference),
    ]
    figure = go.Figure(bars).update_layout(barmode="group", title_text=title)
    if show:
        figure.show()
    if path:
        figure.write_image(path)
