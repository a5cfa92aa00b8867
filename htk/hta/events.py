"""Every event of a rank in HTA's columns: calls, ranges and GPU activities in one pandas frame.

The choice of steps is that of `Frames`: without `include_last_step`, what was launched after the
last step began is left out.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.base.columns.arrow import numbers, truths
from htk.hta.frames import Frames
from htk.traces.trace.file import TraceFile

_ON_GPU = ("kernels", "syncs")


def event_frames(frames: Frames) -> dict[int, pd.DataFrame]:
    """Return the events of each rank; `index` is the event's row in its file."""
    return {
        file.rank or 0: _chosen(frames, file, _frame(frames, file))
        for file in frames.trace.selected_files
    }


def _frame(frames: Frames, file: TraceFile) -> pd.DataFrame:
    events = file.table("events").sort_by("event")
    start = numbers(events["start_ns"])
    row = numbers(events["event"]) - file.first_event
    frame = pd.DataFrame(
        {
            "index": row,
            "s_cat": events["category"].to_pylist(),
            "s_name": events["name"].to_pylist(),
            "pid": events["process"].to_pylist(),
            "tid": events["thread"].to_pylist(),
            "ts": frames.microseconds(start),
            "dur": (numbers(events["end_ns"]) - start) / 1000,
        },
        index=pd.Index(row),
    )
    frame["end"] = frame["ts"] + frame["dur"]
    for column in ("pid", "tid"):
        frame[column] = pd.to_numeric(frame[column], errors="coerce").fillna(-1).astype(int)
    for column in ("stream", "correlation", "external_id"):
        frame[column] = -1
    frame["memory_bw_gbps"] = 0.0
    for name in (*_ON_GPU, "launches", "cpu_ops", "annotations"):
        table = file.table(name)
        indices = numbers(table["event"]) - file.first_event
        for column in ("correlation", "external_id"):
            if column in table.column_names:
                frame.loc[indices, column] = numbers(table[column], -1)
        if name in _ON_GPU:
            frame.loc[indices, "stream"] = numbers(table["stream"], -1)
    kernels, links = file.table("kernels"), file.table("kernel_links")
    indices = numbers(kernels["event"]) - file.first_event
    frame.loc[indices, "memory_bw_gbps"] = numbers(kernels["bandwidth_gbps"], 0.0)
    frame["iteration"] = _step_around(frames, file.rank or 0, frame)
    frame.loc[indices, "iteration"] = numbers(links["step"], -1)
    frame["index_correlation"] = _partners(file, frame)
    return frame


def _step_around(frames: Frames, rank: int, frame: pd.DataFrame) -> np.ndarray:
    """Return the profiler step in which each event starts on the CPU (-1: none)."""
    steps = frames.all_annotations(rank, on_gpu=False)
    steps = steps[steps["step"] >= 0]
    if steps.empty:
        return np.full(len(frame), -1)
    last = np.searchsorted(steps["ts"].to_numpy(), frame["ts"].to_numpy(), side="right") - 1
    inside = (last >= 0) & (frame["ts"].to_numpy() < (steps["ts"] + steps["dur"]).to_numpy()[last])
    return np.where(inside, steps["step"].to_numpy()[last], -1)


def _partners(file: TraceFile, frame: pd.DataFrame) -> np.ndarray:
    """Return the other end of each launch: -1 without a correlation, 0 without a partner."""
    partners = pd.Series(np.where(frame["correlation"] > 0, 0, -1), frame.index)
    kernels = file.table("kernels")
    links = file.table("kernel_links")
    launched = links["launch_row"].is_valid()
    gpu = numbers(kernels["event"].filter(launched)) - file.first_event
    calls = file.table("launches")["event"].take(
        pa.chunked_array([links["launch_row"].filter(launched).combine_chunks()])
    )
    cpu = numbers(calls) - file.first_event
    partners.loc[gpu] = cpu
    partners.loc[cpu] = gpu
    return np.asarray(partners.to_numpy())


def _chosen(frames: Frames, file: TraceFile, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that HTA's choice of steps keeps, without records of the recording itself."""
    frame = frame[frame["s_cat"] != "Trace"]
    last = frames.last_step_start(file.rank or 0)
    if last is None:
        return frame
    annotations = file.table("annotations")
    on_gpu = annotations.filter(pa.array(truths(annotations["on_gpu"])))
    gpu_rows = numbers(on_gpu["event"]) - file.first_event
    kept_ranges = frames.annotations(file.rank or 0, on_gpu=True)["index"]
    is_range = frame["index"].isin(gpu_rows)
    is_kernel = frame["index"].isin(numbers(file.table("kernels")["event"]) - file.first_event)
    is_sync = (frame["stream"] >= 0) & ~is_kernel
    on_cpu = ~(is_range | is_kernel | is_sync)
    keep = on_cpu & (frame["ts"] < last)
    launched = frame.loc[keep, "correlation"]
    keep |= is_kernel & frame["index"].isin(frames.gpu[file.rank or 0]["index"] - file.first_event)
    keep |= is_range & frame["index"].isin(kept_ranges - file.first_event)
    keep |= is_sync & frame["correlation"].isin(launched[launched > 0])
    return frame[keep]
