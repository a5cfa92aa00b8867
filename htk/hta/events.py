"""Every event of a rank in HTA's columns: calls, ranges and GPU activities in one pandas frame.

The choice of steps is that of `Frames`: without `include_last_step`, what was launched after the
last step began is left out.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.base.columns.arrow import read_booleans, read_numbers
from htk.hta.frames import PROFILER_SPAN, Frames
from htk.traces.trace.file import TraceFile

# HTA's columns of an event's arguments, and what stands where an event has none.
_ARGUMENTS: dict[str, int | float | str] = {
    "stream": -1,
    "correlation": -1,
    "bytes": -1,
    "memory_bw_gbps": 0.0,
    "wait_on_stream": -1,
    "wait_on_cuda_event_record_corr_id": -1,
    "input_dims": "-1",
    "input_type": "-1",
    "input_strides": "-1",
    "external_id": -1,
}
_LINKED = {"correlation": "correlation", "external_id": "external_id"}
_FROM_TABLES = {
    "kernels": {
        **_LINKED,
        "stream": "stream",
        "bytes": "size_bytes",
        "memory_bw_gbps": "bandwidth_gbps",
    },
    "syncs": {
        "stream": "stream",
        "correlation": "correlation",
        "wait_on_stream": "wait_stream",
        "wait_on_cuda_event_record_corr_id": "wait_correlation",
    },
    "launches": _LINKED,
    "cpu_ops": {
        "external_id": "external_id",
        "input_dims": "input_dims",
        "input_type": "input_types",
        "input_strides": "input_strides",
    },
    "annotations": {"external_id": "external_id"},
}


def read_events(frames: Frames, rank: int) -> pd.DataFrame:
    """Return the events of a rank that HTA's choice of steps keeps; `index`: rows of its file."""
    file = frames.file_of(rank)
    return _keep_chosen(frames, file, _read_all(frames, file))


def _read_all(frames: Frames, file: TraceFile) -> pd.DataFrame:
    """Return every event of a file."""
    events = file.table("events").sort_by("event")
    start = read_numbers(events["start_ns"])
    row = read_numbers(events["event"]) - file.first_event
    times = {
        "ts": frames.microseconds(start),
        "dur": (read_numbers(events["end_ns"]) - start) / 1000,
    }
    texts = {"s_cat": events["category"], "s_name": events["name"]}
    frame = pd.DataFrame(
        {"index": row, **{name: column.to_pylist() for name, column in texts.items()}},
        index=pd.Index(row),
    )
    for column, source in {"pid": "process", "tid": "thread"}.items():
        identity = pd.to_numeric(pd.Series(events[source].to_pylist(), row), errors="coerce")
        frame[column] = identity.fillna(-1).astype(int)
    for column, time in times.items():
        frame[column] = time
    for column, default in _ARGUMENTS.items():
        frame[column] = default
    for table_name, columns in _FROM_TABLES.items():
        table = file.table(table_name)
        indices = read_numbers(table["event"]) - file.first_event
        for column, source in columns.items():
            default = _ARGUMENTS[column]
            if isinstance(default, str):
                written = pd.Series(table[source].to_pylist(), dtype=object)
                frame.loc[indices, column] = written.fillna(default).to_numpy()
            else:
                frame.loc[indices, column] = read_numbers(table[source], default)
    kernels = file.table("kernels")
    on_gpu = read_numbers(kernels["event"]) - file.first_event
    frame["index_correlation"] = _find_partners(file, frame)
    frame["iteration"] = _step_around(frames, file.rank or 0, frame)
    frame.loc[on_gpu, "iteration"] = read_numbers(file.table("kernel_links")["step"], -1)
    frame["end"] = frame["ts"] + frame["dur"]
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


def measure_duration(frames: Frames, rank: int) -> float:
    """Return what HTA calls a trace's duration: from the first start of an event to the last."""
    starts = read_events(frames, rank)["ts"]
    return float(starts.max() - starts.min())


def _find_partners(file: TraceFile, frame: pd.DataFrame) -> np.ndarray:
    """Return the other end of each launch: -1 without a correlation, 0 without a partner."""
    partners = pd.Series(np.where(frame["correlation"] > 0, 0, -1), frame.index)
    kernels = file.table("kernels")
    links = file.table("kernel_links")
    launched = links["launch_row"].is_valid()
    gpu = read_numbers(kernels["event"].filter(launched)) - file.first_event
    calls = file.table("launches")["event"].take(
        pa.chunked_array([links["launch_row"].filter(launched).combine_chunks()])
    )
    cpu = read_numbers(calls) - file.first_event
    partners.loc[gpu] = cpu
    partners.loc[cpu] = gpu
    return np.asarray(partners.to_numpy())


def _keep_chosen(frames: Frames, file: TraceFile, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that HTA's choice of steps keeps, without records of the recording itself."""
    frame = frame[frame["s_cat"] != PROFILER_SPAN]
    last = frames.last_step_start(file.rank or 0)
    if last is None:
        return frame
    annotations = file.table("annotations")
    on_gpu = annotations.filter(pa.array(read_booleans(annotations["on_gpu"])))
    gpu_rows = read_numbers(on_gpu["event"]) - file.first_event
    kept_ranges = frames.annotations(file.rank or 0, on_gpu=True)["index"]
    is_range = frame["index"].isin(gpu_rows)
    is_kernel = frame["index"].isin(read_numbers(file.table("kernels")["event"]) - file.first_event)
    is_sync = (frame["stream"] >= 0) & ~is_kernel
    on_cpu = ~(is_range | is_kernel | is_sync)
    keep = on_cpu & (frame["ts"] < last)
    launched = frame.loc[keep, "correlation"]
    keep |= is_kernel & frame["index"].isin(frames.gpu[file.rank or 0]["index"] - file.first_event)
    keep |= is_range & frame["index"].isin(kept_ranges - file.first_event)
    keep |= is_sync & frame["correlation"].isin(launched[launched > 0])
    return frame[keep]
