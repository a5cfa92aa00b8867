"""HTA's critical path, from htk's execution graph: of one GPU step, as recorded."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.errors import HtkError
from htk.export.overlay import write_overlays
from htk.graph.critical_path import path_events
from htk.hta.frames import Frames

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


@dataclass(frozen=True)
class CriticalPath:
    """The pieces of a step's critical path."""

    rank: int
    step: int | None
    path: pa.Table
    names: tuple[str, ...]

    def summary(self) -> pd.Series:
        """What bounds the step, in percent."""
        pieces = self.get_critical_path_breakdown()
        by = pieces.groupby("bound_by")["duration"].sum()
        return 100 * by / by.sum()

    def get_critical_path_breakdown(self) -> pd.DataFrame:
        """A row for each piece, first to last."""
        kinds = self.path["kind"].to_pylist()
        on_gpu = np.array([table == "kernels" for table in self.path["table"].to_pylist()], bool)
        return pd.DataFrame(
            {
                "event_idx": numbers(self.path["event"], -1),
                "duration": numbers(self.path["path_ns"]) / 1000,
                "type": kinds,
                "s_name": list(self.names),
                "cat": np.where(on_gpu, "kernel", "cuda_runtime"),
                "rank": numbers(self.path["rank"], -1),
                "bound_by": [_BOUND_BY.get(kind, "cpu_bound") for kind in kinds],
            }
        )


def critical_path(
    frames: Frames, rank: int, annotation: str, instance: int | tuple[int, int] | None
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
        path = path_events(trace.tables, step)
    except HtkError:
        return None, False
    tables = {name: trace.tables[name]["name"] for name in ("kernels", "launches")}
    names = tuple(
        str(tables[table][row]) if row >= 0 else ""
        for table, row in zip(path["table"].to_pylist(), numbers(path["row"], -1), strict=True)
    )
    return CriticalPath(rank, step, path, names), True


def overlay(frames: Frames, rank: int, path: CriticalPath, folder: Path) -> str:
    """A copy of the rank's file with the path drawn in; says where it is."""
    written = write_overlays(frames.trace.sel(ranks=[rank]), folder, path.step)
    return str(next(iter(written)))
