"""HTA's breakdowns: busy and idle time, kinds of kernels, kernels, annotations."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from htk.base.columns.intervals import sweep_spans
from htk.hta.events import read_events
from htk.hta.frames import TYPES, Frames, merge_frame_spans, short_name

_STATS = ["sum", "max", "min", "std", "mean"]
_NAMED = {
    "sum": "sum (us)",
    "max": "max (us)",
    "min": "min (us)",
    "std": "stddev",
    "mean": "mean (us)",
}


def measure_overlap(frames: Frames) -> pd.DataFrame:
    """Return how much of a rank's communication has compute beside it."""
    rows = []
    for rank, gpu in frames.gpu.items():
        kinds = [
            merge_frame_spans(gpu[gpu["kernel_type"] == t])
            for t in ("COMMUNICATION", "COMPUTATION")
        ]
        pieces = sweep_spans(kinds)
        both = int((pieces.end - pieces.start)[pieces.on == 3].sum())
        comm = kinds[0].total
        rows.append((rank, round(100 * both / comm, 2) if comm else float("nan")))
    return pd.DataFrame(rows, columns=["rank", "comp_comm_overlap_pctg"])


def measure_gpu_time(frames: Frames) -> pd.DataFrame:
    """Idle, compute and other time of each rank, first start to last end."""
    rows = []
    for rank, gpu in frames.gpu.items():
        if gpu.empty:
            continue
        total = int(gpu["end_ns"].max() - gpu["start_ns"].min())
        busy = merge_frame_spans(gpu).total
        compute = merge_frame_spans(gpu[gpu["kernel_type"] == "COMPUTATION"]).total
        times = (total - busy, compute, busy - compute)
        shares = (round(100 * t / total, 2) if total else 0.0 for t in times)
        rows.append((rank, *(t / 1000 for t in (*times, total)), *shares))
    columns = ["idle_time", "compute_time", "non_compute_time"]
    units = [f"{c}(us)" for c in (*columns, "kernel_time")]
    return pd.DataFrame(rows, columns=["rank", *units, *(f"{c}_pctg" for c in columns)])


def sum_kernels(
    frames: Frames, ratio: float, most: int, include_memory: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Time by kinds that run alone or at once, and by kernel."""
    types = [t for t in TYPES.values() if include_memory or t != "MEMORY"]
    by_type: dict[str, int] = {}
    by_name = []
    for rank, gpu in frames.gpu.items():
        pieces = sweep_spans([merge_frame_spans(gpu[gpu["kernel_type"] == t]) for t in types])
        for on in np.unique(pieces.on[pieces.on > 0]).tolist():
            label = " overlapping ".join(t for k, t in enumerate(types) if on >> k & 1)
            time = int((pieces.end - pieces.start)[pieces.on == on].sum())
            by_type[label] = by_type.get(label, 0) + time
        for kind in types:
            of_kind = summarise_by_name(gpu[gpu["kernel_type"] == kind], ratio, most)
            by_name.append(of_kind.assign(kernel_type=kind, rank=rank))
    kinds = pd.DataFrame(by_type.items(), columns=["kernel_type", "sum"])
    kinds = kinds.sort_values("sum", ascending=False, ignore_index=True)
    kinds["percentage"] = (100 * kinds["sum"] / max(kinds["sum"].sum(), 1)).round(1)
    kinds["sum"] /= 1000
    named = pd.concat(by_name, ignore_index=True).sort_values(
        ["kernel_type", "name", "rank"], ignore_index=True
    )
    return kinds, named.rename(columns=_NAMED)


def summarise_by_name(
    events: pd.DataFrame, ratio: float, most: int, kept: Sequence[str] = ()
) -> pd.DataFrame:
    """Statistics by name; beyond `most` names the small ones are one, of all their events."""
    total = events.groupby("name")["dur"].sum().sort_values(ascending=False)
    if len(total) > most:
        reached = total.cumsum()
        small = (reached > reached.quantile(ratio)) | (np.arange(len(total)) >= most)
        others = set(total.index[small & ~total.index.isin(kept)])
        events = events.assign(name=events["name"].where(~events["name"].isin(others), "others"))
    of_name = events.groupby("name")["dur"].agg(_STATS).reset_index()
    return of_name.fillna({"std": 0.0}).sort_values("sum", ascending=False, ignore_index=True)


def sum_annotations(
    frames: Frames, on_gpu: bool, ratio: float, most: int, patterns: Sequence[str] | None
) -> pd.DataFrame | None:
    """Time of user ranges by name; None where there are none."""
    of_ranks = []
    for rank in frames.ranks:
        ranges = frames.annotations(rank, on_gpu=on_gpu)
        names = ranges["name"].unique()
        kept = [n for n in names if any(re.search(p, n) for p in patterns or ())]
        if len(ranges):
            of_ranks.append(summarise_by_name(ranges, ratio, most, kept).assign(rank=rank))
    if not of_ranks:
        return None
    named = pd.concat(of_ranks, ignore_index=True).sort_values(["rank", "name"], ignore_index=True)
    return named.rename(columns=_NAMED)


def kernels_with_annotations(
    frames: Frames, rank: int, expand: bool, shorten: bool
) -> pd.DataFrame | None:
    """GPU activities of a rank with the innermost user range on their stream; None: no ranges."""
    ranges = frames.annotations(rank, on_gpu=True)
    if ranges.empty:
        return None
    gpu = frames.build_frame(rank)
    innermost = np.full(len(gpu), -1, object)
    start = gpu["start_ns"].to_numpy()
    end = gpu["end_ns"].to_numpy()
    where = gpu[["pid", "tid"]].to_numpy()
    for row in ranges.sort_values("dur", ascending=False).itertuples():  # few, the innermost last
        inside = (start < row.end_ns) & (end > row.start_ns)
        innermost[inside & (where == (row.pid, row.tid)).all(axis=1)] = row.name
    events = read_events(frames, rank)
    kernels = events.loc[gpu["index"] - frames.file_of(rank).first_event].reset_index(drop=True)
    names = kernels["s_name"]
    kernels.insert(1, "cat", kernels.pop("s_cat"))
    kernels.insert(2, "name", kernels.pop("s_name"))
    kernels["user_annotation"] = innermost
    if expand:
        kernels["s_name"] = names.map(short_name if shorten else str)
        kernels["s_cat"] = kernels["cat"]
        kernels["s_user_annotation"] = np.where(innermost == -1, "", innermost)
    return kernels


def sum_idle_gaps(
    frames: Frames, rank: int, streams: Sequence[int] | None, short_us: float, stats: bool
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Gaps of each stream: the host was late, kernels followed closely, or something else."""
    gpu = frames.build_frame(rank)
    rows = []
    described = []
    for stream in list(streams) if streams else gpu["stream"].unique().tolist():
        on_stream = gpu[gpu["stream"] == stream].sort_values("ts", kind="stable")
        gap = on_stream["ts"] - (on_stream["ts"] + on_stream["dur"]).cummax().shift(1)
        late = on_stream["launch_ts"] > (on_stream["ts"] + on_stream["dur"]).cummax().shift(1)
        close = ~late & (gap < short_us)
        cause = np.select([late, close], ["host_wait", "kernel_wait"], "other")
        gap = gap.clip(lower=0)  # kernels that overlap leave no gap
        total = gap.sum()
        for name, time in gap.groupby(cause).sum().items():
            rows.append((rank, stream, name, time, time / total if total else float("nan")))
        if stats:
            table = gap.groupby(cause).describe()
            table.index.name = "idle_category"
            table.insert(0, "stream", stream)
            table.insert(0, "rank", rank)
            described.append(table)
    columns = ["rank", "stream", "idle_category", "idle_time", "idle_time_ratio"]
    answer = pd.DataFrame(rows, columns=columns).round(2)
    return answer, pd.concat(described).round(2) if described else None
