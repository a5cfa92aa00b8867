"""How fast copies and sets are."""

import re

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    mark_valid,
    number_or_null,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.intervals import union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.call_tree import labels_of

RETURNS = table(
    rank=(INT32, "Global rank."),
    direction=(TEXT, "HtoD, DtoH, DtoD, PtoP, HtoH or set."),
    memory=(TEXT, "Between which kinds of memory, where recorded: Pinned -> Device."),
    count=(INT64, "Copies or sets."),
    size_bytes=(INT64, "Bytes moved; null where none of them records it."),
    size_bytes_p50=(FLOAT64, "Median size."),
    total_ns=(INT64, "Sum of durations."),
    busy_ns=(INT64, "Time in which at least one runs."),
    bandwidth_gbps=(FLOAT64, "Bytes by busy time: each moment counts as long as it lasts."),
    copy_gbps_p50=(FLOAT64, "Median over the copies, whatever their size."),
    copy_gbps_max=(FLOAT64, "Fastest copy of at least 1 MiB; null: none is so large."),
    small_count=(INT64, "Below 64 KiB: their cost is the launch, not the transfer."),
    without_size=(INT64, "Activities that record no size; not in the bandwidth."),
)
_SMALL = 64 << 10
_LARGE = 1 << 20
_MICROSECOND = 1000
_CUDA = re.compile(r"([HDPA]to[HDPA])(?: \((.*)\))?")
_XPU = re.compile(r"\(([MHD])2([MHD])\)$")  # M: of the host's allocator, H: of SYCL's
_XPU_MEMORY = {"M": "Pageable", "H": "Pinned", "D": "Device"}
_HIP = re.compile(r"(Host|Device|Peer)\w*?To(Host|Device|Peer)", re.IGNORECASE)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", "busy_ns", "direction", stacked=False),
    needs=("kernels",),
    spread=BY_RANK,
)
def memory_bandwidth(kernels: pa.Table) -> pa.Table:
    """How fast are copies and sets, in each direction?

    Where a recording has whole microseconds alone, a copy of one took up to two: the fact
    `durations_off_by_up_to_ns` says so, and rates of short copies are no better than that.
    """
    activity, activities = codes_of(kernels["activity"])
    moving = [k for k, a in enumerate(activities.to_pylist()) if a in ("copy", "set")]
    rows = np.flatnonzero(np.isin(activity, moving))
    name, labels = labels_of(kernels["name"])
    directions = [_find_direction(label) for label in labels]
    ways = sorted(set(directions), key=str)
    way = np.array([ways.index(t) for t in directions], np.int64)[name[rows]]
    rank = read_keys(kernels["rank"])[rows]
    groups = Groups.by_keys([rank, way])
    start, end = read_times(kernels, rows)
    size, has_size = _read_sizes(kernels, rows, end - start)
    moved = groups.sum(np.where(has_size, size, 0))
    measured = union_lengths(
        groups.group_ids[has_size], start[has_size], end[has_size], len(groups)
    )
    some = groups.sum(has_size.astype(np.int64))
    speed = divide_or_nan(size, end - start)
    timed = has_size & (end > start)
    large = has_size & (end > start) & (size >= _LARGE)
    k = groups.keys
    order = order_by(k[:, 0], -groups.sum(end - start))
    table = pa.table(
        [
            number_or_null(k[:, 0], INT32),
            build_texts([ways[w][0] for w in k[:, 1].tolist()]),
            build_texts([ways[w][1] for w in k[:, 1].tolist()]),
            build_numbers(groups.count, INT64),
            build_numbers(moved, INT64, some > 0),
            _build_quantile(groups, has_size, size, 0.5),
            build_numbers(groups.sum(end - start), INT64),
            build_numbers(union_lengths(groups.group_ids, start, end, len(groups)), INT64),
            build_numbers(moved / np.maximum(measured, 1), FLOAT64, measured > 0),
            _build_quantile(groups, timed, speed, 0.5),
            _build_quantile(groups, large, speed, 1.0),
            build_numbers(groups.sum((has_size & (size < _SMALL)).astype(np.int64)), INT64),
            build_numbers(groups.count - some, INT64),
        ],
        schema=RETURNS,
    )
    in_microseconds = len(rows) > 0 and not ((start % _MICROSECOND) | (end % _MICROSECOND)).any()
    facts = {"durations_off_by_up_to_ns": _MICROSECOND} if in_microseconds else {}
    return with_coverage(table.take(pa.array(order)), **facts)


def _find_direction(name: str) -> tuple[str, str | None]:
    """From where to where, and between which kinds of memory; as CUDA, XPU and HIP name it."""
    if cuda := _CUDA.search(name):
        return cuda[1], cuda[2]
    if xpu := _XPU.search(name):
        begin, end = xpu.groups()
        memory = f"{_XPU_MEMORY[begin]} -> {_XPU_MEMORY[end]}"
        return f"{begin}to{end}".replace("M", "H"), memory
    if hip := _HIP.search(name):
        return f"{hip[1][0]}to{hip[2][0]}".upper().replace("TO", "to"), None
    return ("set" if "set" in name.lower() else "copy"), None


def _read_sizes(kernels: pa.Table, rows: Ints, length: Ints) -> tuple[Ints, Mask]:
    """Bytes of each activity, and whether they are known: recorded, or told by its bandwidth."""
    size = read_numbers(kernels["size_bytes"])[rows]
    recorded = mark_valid(kernels["size_bytes"])[rows]
    speed = read_numbers(kernels["bandwidth_gbps"])[rows]
    by_rate = ~recorded & (speed > 0)
    return np.where(by_rate, np.round(speed * length), size).astype(np.int64), recorded | by_rate


def _build_quantile(groups: Groups, chosen: Mask, values: Ints | Floats, share: float) -> pa.Array:
    """Return a quantile over the chosen rows of each group; null where there are none."""
    some = Groups.by_keys(groups.group_ids[chosen])
    quantiles = np.zeros(len(groups))
    has_value = np.zeros(len(groups), bool)
    filled = some.keys[:, 0]
    (quantiles[filled],) = some.quantiles(values[chosen], (share,))
    has_value[filled] = True
    return build_numbers(quantiles, FLOAT64, has_value)
