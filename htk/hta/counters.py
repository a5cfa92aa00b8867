"""HTA's counters: launched work that waits on each stream, and bandwidth of copies."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from htk.answers.export.overlay import copy_with
from htk.base.core.humanize import format_microseconds
from htk.hta.events import measure_duration
from htk.hta.frames import Frames, memory_type

Series = dict[int, pd.DataFrame]


def queue_lengths(frames: Frames, ranks: Sequence[int]) -> Series:
    """Return the activities launched and not begun, after each change; a series for each stream."""
    lengths = {}
    for rank in ranks:
        gpu = frames.build_frame(rank)
        gpu = gpu[gpu["launch_ts"].notna()]
        if gpu.empty:
            continue
        where = gpu[["pid", "tid", "stream"]]
        launch = where.assign(index=gpu["launch_index"], ts=gpu["launch_ts"], change=1)
        launch = launch.sort_values("index", kind="stable")
        start = np.maximum(gpu["ts"], gpu["launch_ts"])
        begin = where.assign(index=gpu["index"], ts=start, change=-1)
        changes = pd.concat([launch, begin]).sort_values(["stream", "ts"], kind="stable")
        changes["index"] -= frames.file_of(rank).first_event
        changes["queue_length"] = changes.groupby("stream")["change"].cumsum()
        columns = ["ts", "pid", "tid", "stream", "queue_length"]
        lengths[rank] = changes.set_index("index")[columns]
    return lengths


def queue_summary(series: Series) -> pd.DataFrame | None:
    """Statistics of the lengths by rank and stream."""
    lengths = [
        frame.assign(rank=rank)[["rank", "stream", "queue_length"]]
        .groupby(["rank", "stream"])
        .describe()
        for rank, frame in series.items()
    ]
    return pd.concat(lengths) if lengths else None


def measure_full_queues(frames: Frames, series: Series, most: int) -> pd.DataFrame:
    """Return how long each stream's queue was full, of every stream that ever was."""
    rows = []
    for rank, frame in series.items():
        total = measure_duration(frames, rank)
        for stream, lengths in frame.groupby("stream"):
            length = (lengths["ts"].shift(-1) - lengths["ts"])[
                lengths["queue_length"] >= most
            ].sum()
            if (lengths["queue_length"] >= most).any():
                rows.append((rank, stream, length, length / total if total else float("nan")))
    columns = ["duration_at_max_queue_length", "relative_duration_at_max_queue_length"]
    return pd.DataFrame(rows, columns=["rank", "stream", *columns]).astype({"rank": int})


def build_bandwidth_series(frames: Frames, ranks: Sequence[int]) -> Series:
    """Bandwidth of copies and sets by direction, after each change."""
    rates = {}
    for rank in ranks:
        gpu = frames.build_frame(rank)
        gpu = gpu[(gpu["kernel_type"] == "MEMORY") & (gpu["dur"] > 0)]
        if gpu.empty:
            continue
        rows = gpu[["ts", "pid", "memory_bw_gbps"]].assign(name=gpu["name"].map(memory_type))
        ends = rows.assign(ts=gpu["ts"] + gpu["dur"], memory_bw_gbps=-gpu["memory_bw_gbps"])
        changes = pd.concat([rows, ends], ignore_index=True)
        changes = changes.sort_values(["name", "ts"], kind="stable")
        changes["memory_bw_gbps"] = changes.groupby("name")["memory_bw_gbps"].cumsum().round(6)
        rates[rank] = changes[["ts", "pid", "name", "memory_bw_gbps"]]
    return rates


def bandwidth_summary(series: Series) -> pd.DataFrame | None:
    """Statistics of the changes above zero by rank and direction."""
    described = []
    for rank, frame in series.items():
        moving = frame[frame["memory_bw_gbps"] > 0].assign(rank=rank)
        described.append(
            moving[["rank", "name", "memory_bw_gbps"]].groupby(["rank", "name"]).describe()
        )
    return pd.concat(described) if described else None


def write_counter_copy(frames: Frames, rank: int, series: dict[str, Series], suffix: str) -> Path:
    """Return a copy of a rank's file, beside it, with the series drawn in as counters."""
    part = frames.file_of(rank)
    name, dot, ending = part.file.partition(".json")
    target = Path(f"{name}{suffix}{dot}{ending}")
    base = int(part.table("ranks")["base_time_ns"][0].as_py() or 0)
    drawn = [
        event
        for counter, of_ranks in series.items()
        if rank in of_ranks
        for event in _write_counter_events(counter, of_ranks[rank], frames.origin_ns - base)
    ]
    copy_with(part.file, target, drawn)
    return target


def _write_counter_events(counter: str, frame: pd.DataFrame, origin_ns: int) -> Iterator[str]:
    """Return counter events: one counter for each direction, or one series for each stream."""
    values = frame[frame.columns[-1]]
    names = frame["name"] if "name" in frame.columns else [counter] * len(frame)
    ids = frame["stream"] if "stream" in frame.columns else [None] * len(frame)
    rows = zip(frame["ts"], frame["pid"], names, ids, values, strict=True)
    for ts, process, name, stream, value in rows:  # a line of JSON each
        event = {"ph": "C", "name": name, "pid": int(process), "args": {counter: float(value)}}
        if stream is not None:
            event["id"] = int(stream)
        time = format_microseconds(round(ts * 1000) + origin_ns)
        yield f'{{"ts": {time}, {json.dumps(event)[1:]}'
