"""HTA's critical path, from htk's execution graph: of one GPU step, as recorded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.answers.export.overlay import write_overlays
from htk.base.columns.arrow import match_texts, read_booleans, read_numbers, read_times
from htk.base.columns.intervals import measure_covered, merge_spans
from htk.base.errors import HtkError
from htk.base.mappings import NamedTables
from htk.hta.frames import Frames
from htk.quantities.graph.fidelity import draw_path

_BOUND_BY = {
    "compute": "gpu_compute_bound",
    "memory": "gpu_memory_bound",
    "communication": "gpu_communication_bound",
    "gap between kernels": "gpu_kernel_kernel_overhead",
    "launch latency": "gpu_kernel_launch_overhead",
    "stream waits for stream": "stream_wait",
    "host waits for GPU": "host_wait",
    "full queue": "full_queue",
}
_ON_CPU = "cpu_bound"


@dataclass(frozen=True)
class CriticalPath:
    """The pieces of a step's critical path."""

    rank: int
    step: int | None
    path: pa.Table
    names: tuple[str, ...]
    in_loading: np.ndarray  # at least half of the piece lies in a range of data loading

    def summary(self) -> pd.Series:
        """Return what bounds the step, in percent."""
        pieces = self.get_critical_path_breakdown()
        by = pieces.groupby("bound_by")["duration"].sum()
        return 100 * by / by.sum()

    def get_critical_path_breakdown(self) -> pd.DataFrame:
        """Return a row for each piece, first to last."""
        kinds = self.path["kind"].to_pylist()
        bound_by = np.array([_BOUND_BY.get(kind, _ON_CPU) for kind in kinds], object)
        bound_by[(bound_by == _ON_CPU) & self.in_loading] = "data_loading"
        on_gpu = np.array([table == "kernels" for table in self.path["table"].to_pylist()], bool)
        return pd.DataFrame(
            {
                "event_idx": read_numbers(self.path["event"], -1),
                "duration": read_numbers(self.path["path_ns"]) / 1000,
                "type": kinds,
                "s_name": list(self.names),
                "cat": np.where(on_gpu, "kernel", "cuda_runtime"),
                "rank": read_numbers(self.path["rank"], -1),
                "bound_by": bound_by,
            }
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("critical_path", "critical_path_edges_set", "edges", "nodes", "save"):
            raise AttributeError(
                f"htk's critical path is not a graph and has no {name}: its pieces are in `path` "
                "and get_critical_path_breakdown()"
            )
        raise AttributeError(name)


def critical_path(
    frames: Frames,
    rank: int,
    annotation: str,
    instance: int | tuple[int, int] | None,
    data_load_events: Sequence[str] = (),
) -> tuple[CriticalPath | None, bool]:
    """The path of the step that an instance of a range lies in; False where there is none."""
    ranges = frames.annotations(rank, on_gpu=False)
    instances = ranges[ranges["name"].str.startswith(annotation)]
    position = instance[0] if isinstance(instance, tuple) else instance or 0
    if not 0 <= position < len(instances):
        return None, False
    chosen = instances.iloc[position]
    steps = ranges[ranges["step"] >= 0]
    round_it = steps[
        (steps["start_ns"] <= chosen["start_ns"]) & (steps["end_ns"] > chosen["start_ns"])
    ]
    step = int(round_it["step"].iloc[0]) if len(round_it) else None
    trace = frames.trace.sel(ranks=[rank])
    try:
        path = draw_path(trace.tables, step).pieces
    except HtkError:
        return None, False
    tables = {name: trace.tables[name]["name"] for name in ("kernels", "launches")}
    names = tuple(
        str(tables[table][row]) if row >= 0 else ""
        for table, row in zip(path["table"].to_pylist(), read_numbers(path["row"], -1), strict=True)
    )
    loading = _in_ranges(path, trace.tables, data_load_events)
    return CriticalPath(rank, step, path, names, loading), True


def _in_ranges(path: pa.Table, tables: NamedTables, patterns: Sequence[str]) -> np.ndarray:
    """Return which pieces lie at least half in operators or ranges of the CPU with such names."""
    start, end = read_times(path)
    starts = []
    ends = []
    for name in ("cpu_ops", "annotations") if patterns else ():
        table = tables[name]
        named = match_texts(table["name"], lambda text: any(re.search(p, text) for p in patterns))
        if "on_gpu" in table.column_names:
            named &= ~read_booleans(table["on_gpu"])
        chosen = table.filter(pa.array(named))
        starts.append(read_numbers(chosen["start_ns"]))
        ends.append(read_numbers(chosen["end_ns"]))
    if not starts:
        return np.zeros(len(start), bool)
    ranges = merge_spans(np.concatenate(starts), np.concatenate(ends))
    inside = measure_covered(ranges, end) - measure_covered(ranges, start)
    return np.asarray((end > start) & (2 * inside >= end - start))


def write_path_overlay(frames: Frames, rank: int, path: CriticalPath, folder: Path) -> str:
    """Return a copy of the rank's file with the path drawn in; says where it is."""
    written = write_overlays(frames.trace.sel(ranks=[rank]), folder, path.step)
    return str(next(iter(written)))
