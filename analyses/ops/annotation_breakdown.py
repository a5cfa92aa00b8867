"""What user ranges cost, on the CPU and on the GPU."""

import re
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    number_or_null,
    read_booleans,
    read_keys,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.intervals import union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.humanize import parse_pattern
from htk.base.core.spread import BY_RANK
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.user_ranges import find_enclosing_ranges
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import labels_of

RETURNS = table(
    rank=(INT32, "Global rank."),
    name=(TEXT, "Range; all steps of the profiler are one, ProfilerStep."),
    count=(INT64, "Ranges on the CPU."),
    cpu_total_ns=(INT64, "Sum of their durations."),
    cpu_ns_mean=(FLOAT64, "Mean duration."),
    cpu_ns_max=(INT64, "Longest."),
    kernels=(INT64, "GPU activities launched inside them, at any depth."),
    device_ns=(INT64, "Sum of those activities."),
    device_busy_ns=(INT64, "Time in which at least one of them runs."),
    device_time_pct=(FLOAT64, "device_ns of all GPU time of the rank."),
    gpu_ranges=(INT64, "Copies of the range on the GPU, as recorded."),
    gpu_ranges_ns=(INT64, "Sum of their durations, gaps between activities included."),
)
_STEP = re.compile(r"^ProfilerStep#\d+")


@analysis(
    returns=RETURNS,
    chart=Bar("name", ("cpu_total_ns", "device_ns"), horizontal=True, stacked=False),
    needs=("annotations",),
    null_without={
        "kernels": ("kernels", "device_ns", "device_busy_ns", "gpu_ranges", "gpu_ranges_ns")
    },
    spread=BY_RANK,
)
def annotation_breakdown(
    annotations: pa.Table,
    annotation_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    match: Annotated[str | None, "Regular expression that names must match: user ranges."] = None,
) -> pa.Table:
    """What do user ranges cost, on the CPU and on the GPU?

    GPU activities belong to the ranges around the call that launched them, whenever they run: those
    of its thread, and of the thread that an autograd thread works for.
    """
    name, labels = _number_names(annotations, match)
    rank = read_keys(annotations["rank"])
    kept = np.flatnonzero(name != NONE)
    groups = Groups.by_keys(np.column_stack([rank, name])[kept])
    group = fill_none(len(name))
    group[kept] = groups.group_ids
    length = read_lengths(annotations)
    on_gpu = read_booleans(annotations["on_gpu"])[kept]
    own = length[kept]
    on_cpu = np.where(on_gpu, 0, 1)
    count = groups.sum(on_cpu)
    total = groups.sum(np.where(on_gpu, 0, own))
    count_gpu = groups.sum(1 - on_cpu)
    row, owner = _find_launched(annotations, annotation_links, kernels, kernel_links, group)
    start, end = read_times(kernels)
    device = np.zeros(len(groups), np.int64)
    np.add.at(device, owner, (end - start)[row])
    of_rank = _per_rank(kernels, groups.keys[:, 0])
    columns = [
        number_or_null(groups.keys[:, 0], INT32),
        build_texts([labels[k] for k in groups.keys[:, 1].tolist()]),
        build_numbers(count, INT64),
        build_numbers(total, INT64),
        build_numbers(total / np.maximum(count, 1), FLOAT64, count > 0),
        build_numbers(groups.max(np.where(on_gpu, 0, own)), INT64),
        build_numbers(np.bincount(owner, minlength=len(groups)), INT64),
        build_numbers(device, INT64),
        build_numbers(union_lengths(owner, start[row], end[row], len(groups)), INT64),
        build_percent(device, of_rank),
        build_numbers(count_gpu, INT64),
        build_numbers(groups.sum(np.where(on_gpu, own, 0)), INT64),
    ]
    order = order_by(groups.keys[:, 0], -device, -total)
    return with_coverage(pa.table(columns, schema=RETURNS).take(pa.array(order)))


def _number_names(annotations: pa.Table, match: str | None) -> tuple[Ints, list[str]]:
    """Return a number for each name that is wanted (NONE: not), and the names."""
    codes, labels = labels_of(annotations["name"])
    wanted = parse_pattern(match or "", "match")
    plain = ["ProfilerStep" if _STEP.match(label) else label for label in labels]
    distinct = {label: k for k, label in enumerate(dict.fromkeys(plain))}
    to = [distinct[p] if wanted.search(p) else NONE for p in plain]
    return np.array(to, np.int64)[codes], list(distinct)


def _find_launched(
    annotations: pa.Table,
    annotation_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    group: Ints,
) -> tuple[Ints, Ints]:
    """Return which activity was launched inside which group of ranges; each pair once."""
    rows = []
    inside = []
    for row, ranges in find_enclosing_ranges(annotations, annotation_links, kernel_links, kernels):
        named = group[ranges] != NONE
        rows.append(row[named])
        inside.append(group[ranges[named]])
    stepped, steps = _find_step_launches(annotations, kernels, kernel_links, group)
    pairs = np.column_stack([np.concatenate([*rows, stepped]), np.concatenate([*inside, steps])])
    distinct = Groups.by_keys(pairs.astype(np.int64)).keys
    return distinct[:, 0], distinct[:, 1]


def _find_step_launches(
    annotations: pa.Table, kernels: pa.Table, kernel_links: pa.Table, group: Ints
) -> tuple[Ints, Ints]:
    """Return the activities that a step of the profiler launched, and its group."""
    chosen = np.flatnonzero((read_numbers(annotations["step"], NONE) != NONE) & (group != NONE))
    ranges = Groups.by_keys(_step_keys(annotations, annotations["step"])[chosen])
    in_steps = np.flatnonzero(read_numbers(kernel_links["step"], NONE) != NONE)
    range_row = row_of(ranges.keys, _step_keys(kernels, kernel_links["step"])[in_steps])
    in_range = range_row != NONE
    return in_steps[in_range], group[chosen][ranges.first_row][range_row[in_range]]


def _step_keys(table: pa.Table, step: pa.ChunkedArray) -> Ints:
    """Return what tells a step from all others."""
    columns = [
        read_numbers(table["rank"], NONE),
        read_numbers(table["cycle"], NONE),
        read_numbers(step, NONE),
    ]
    return np.column_stack(columns).astype(np.int64)


def _per_rank(kernels: pa.Table, ranks: Ints) -> Ints:
    """GPU time of each of the ranks."""
    length = read_lengths(kernels)
    present, inverse = np.unique(read_numbers(kernels["rank"], NONE), return_inverse=True)
    total = np.zeros(len(present), np.int64)
    np.add.at(total, inverse, length)
    of = dict(zip(present.tolist(), total.tolist(), strict=True))
    return np.array([of.get(r, 0) for r in ranks.tolist()], np.int64)
