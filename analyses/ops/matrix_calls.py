"""Matrix products, attention and convolutions by shape: sizes, rates and their spread."""

import json
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts, codes_of
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.physics.detected import Device, common_device, peak_tflops
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.op_work import (
    BEYOND_PEAK,
    FEWER_OPERATIONS,
    OperatorWork,
    WorkTables,
    coverage_facts,
    saving_activities,
    tf32_rows,
)

_FAMILIES = ("gemm", "attention", "convolution")
_SIZES = {
    "batch": (INT64, "Products in a batch, sequences or images."),
    "product_m": (INT64, "Rows of a product."),
    "product_n": (INT64, "Columns of a product."),
    "product_k": (INT64, "Inner size of a product."),
    "heads": (INT64, "Heads of the queries."),
    "kv_heads": (INT64, "Heads of keys and values."),
    "query_length": (
        INT64,
        "Queries of a sequence; of a ragged batch all tokens.",
    ),
    "key_length": (INT64, "Keys of a sequence; of a ragged batch all tokens."),
    "head_size": (INT64, "Width of a head."),
    "channels_in": (INT64, "Channels of a convolution's input."),
    "channels_out": (INT64, "Channels of its output (of a group, where it is transposed)."),
}

RETURNS = table(
    family=(TEXT, "gemm, attention or convolution."),
    op=(TEXT, "Operator."),
    **_SIZES,
    shapes=(TEXT, "Shapes of its inputs."),
    strides=(TEXT, "Strides of its inputs; null where they were not recorded."),
    types=(TEXT, "Types of its inputs."),
    count=(INT64, "Calls with GPU time."),
    kernels=(INT64, "GPU activities of them."),
    device_ns=(INT64, "Sum of their durations."),
    device_time_pct=(FLOAT64, "Share of all GPU time."),
    flops_per_call=(FLOAT64, "Operations of a call, as its kernels do them."),
    achieved_tflops=(FLOAT64, "1e12 operations a second of GPU time, of all calls together."),
    achieved_tflops_min=(FLOAT64, "The same of the slowest call."),
    achieved_tflops_p50=(FLOAT64, "Of the median call."),
    achieved_tflops_max=(FLOAT64, "Of the fastest call."),
    achieved_tflops_std=(FLOAT64, "Standard deviation over calls; null for one."),
    note=(TEXT, "Why operations and rates, or some rates, are empty."),
    call_ns_min=(INT64, "GPU time of the shortest call."),
    call_ns_p50=(FLOAT64, "Of the median call."),
    call_ns_max=(INT64, "Of the longest call."),
    kernel_names=(TEXT, "Its kernels as JSON, most time first; eight at most."),
)


@analysis(returns=RETURNS, chart=Bar("op", "device_ns", horizontal=True), needs=("kernels",))
def matrix_calls(
    tables: WorkTables,
    ranks: pa.Table,
    *,
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """Which matrix products, attention calls and convolutions ran, and how fast by shape?

    A row is one operator with one set of shapes, strides and types. GPU time counts for the
    innermost modelled operator round the launch, once; what a shape alone does not tell is empty.
    """
    cpu_ops = tables["cpu_ops"]
    kernels = tables["kernels"]
    kernel_links = tables["kernel_links"]
    work = OperatorWork.from_tables(tables)
    chosen = _matrix_kinds(work.costs)
    rows = np.flatnonzero(work.modelled & chosen[work.kind])
    bearer = work.row[rows]
    strides = _read_codes(cpu_ops["input_strides"])[bearer]
    groups = Groups.by_keys([work.kind[rows], strides])
    calls = Groups.by_keys([groups.group_ids, bearer, work.replay[rows]])
    call_ns = calls.sum(work.length[rows])
    group = calls.keys[:, 0]
    by_group = Groups.by_keys(group[:, None])
    costs = [work.costs[k] for k in groups.keys[:, 0].tolist()]
    flops = np.array([float(c.flops) for c in costs if isinstance(c, Cost)])
    named = cpu_ops.select(["name", "input_dims", "input_strides", "input_types"])
    named = named.take(pa.array(bearer[groups.first_row]))
    time = groups.sum(work.length[rows])
    saves = groups.max(saving_activities(work, kernels)[rows].astype(np.int64)) > 0
    flops[saves] = np.nan
    in_tf32 = tf32_rows(kernels, work, cpu_ops.num_rows)[bearer[groups.first_row]]
    rates = _compute_rates(flops, by_group, call_ns, time)
    beyond = rates > _find_peaks(costs, in_tf32, common_device(ranks))[:, None]
    beyond[:, -1] |= beyond[:, -2]  # the spread over calls of which one cannot be
    notes = np.full(len(groups), None, object)
    notes[beyond.any(axis=1)] = BEYOND_PEAK
    notes[saves] = FEWER_OPERATIONS
    columns = [
        build_texts([c.family for c in costs if isinstance(c, Cost)]),
        named["name"].combine_chunks(),
        *_build_size_columns(costs),
        *(named[c].combine_chunks() for c in named.column_names[1:]),
        build_numbers(by_group.count, INT64),
        build_numbers(groups.count, INT64),
        build_numbers(time, INT64),
        build_percent(time, np.full(len(groups), int(work.length.sum()))),
        *(_build_finite(column) for column in (flops, *np.where(beyond, np.nan, rates).T)),
        build_texts(notes.tolist()),
        *_build_duration_columns(by_group, call_ns),
        build_texts(_kernel_names(groups, kernels["name"], rows, work.length)),
    ]
    answer = pa.table(columns, schema=RETURNS)
    order = order_by(-time)
    shown = answer.take(pa.array(order[:n] if n else order))
    return with_coverage(
        shown,
        rows_left_out=answer.num_rows - shown.num_rows,
        **coverage_facts(work, cpu_ops, kernels, kernel_links),
    )


def _matrix_kinds(costs: list[Any]) -> Mask:
    """Return whether each kind of call is one of these families; the last for none."""
    kinds = [isinstance(c, Cost) and c.matrix and c.family in _FAMILIES for c in costs]
    return np.array([*kinds, False], bool)


def _read_codes(column: pa.ChunkedArray) -> Ints:
    return codes_of(column)[0].astype(np.int64)


def _build_size_columns(costs: list[Any]) -> list[pa.Array]:
    dims = [dict(cost.dims) for cost in costs]
    return [pa.array([sizes.get(name) for sizes in dims], INT64) for name in _SIZES]


def _find_peaks(costs: list[Any], in_tf32: Mask, device: Device | None) -> Floats:
    """Return the peak of the GPU for each row, in TFLOP/s; infinite where it is not known."""
    if device is None or device.gpu is None:
        return np.full(len(costs), np.inf)
    peaks = [
        peak_tflops(device.gpu, cost.dtype, matrix=True, tf32=tf32)
        for cost, tf32 in zip(costs, in_tf32.tolist(), strict=True)
    ]
    return np.array([peak or np.inf for peak in peaks])


def _compute_rates(flops: Floats, by_group: Groups, call_ns: Ints, time: Ints) -> Floats:
    """Return the rates of all calls together, and of the slowest, median and fastest call, and
    their spread, as columns; NaN where there is none."""
    group = by_group.keys[:, 0][by_group.group_ids]
    rate = np.where(call_ns > 0, flops[group] / np.maximum(call_ns, 1) / 1e3, np.nan)
    together = np.where(time > 0, flops * by_group.count / np.maximum(time, 1) / 1e3, np.nan)
    rate[(by_group.min(call_ns) == 0)[by_group.group_ids]] = np.nan  # of a call that took no time
    slowest, median, fastest = by_group.quantiles(rate, [0.0, 0.5, 1.0])
    mean = np.bincount(by_group.group_ids, rate) / by_group.count
    square = np.bincount(by_group.group_ids, (rate - mean[by_group.group_ids]) ** 2)
    spread = np.sqrt(square / np.maximum(by_group.count - 1, 1))
    spread[by_group.count < 2] = np.nan
    return np.column_stack([together, slowest, median, fastest, spread])


def _build_duration_columns(by_group: Groups, call_ns: Ints) -> list[pa.Array]:
    (median,) = by_group.quantiles(call_ns.astype(np.float64), [0.5])
    return [
        build_numbers(by_group.min(call_ns), INT64),
        pa.array(median, FLOAT64),
        build_numbers(by_group.max(call_ns), INT64),
    ]


def _build_finite(values: Floats) -> pa.Array:
    return pa.array(values, FLOAT64, mask=~np.isfinite(values))


def _kernel_names(
    groups: Groups, names: pa.ChunkedArray, rows: Ints, length: Ints
) -> list[str | None]:
    """Return the kernels of each group by time, as JSON."""
    codes, dictionary = codes_of(names)
    pairs = Groups.by_keys([groups.group_ids, codes[rows]])
    time = pairs.sum(length[rows])
    order = order_by(pairs.keys[:, 0], -time)
    listed: list[list[str]] = [[] for _ in range(len(groups))]
    for pair in order.tolist():  # a distinct kernel of a shape each
        group, code = pairs.keys[pair].tolist()
        if len(listed[group]) < 8 and code != NONE:
            listed[group].append(dictionary[code].as_py())
    return [json.dumps(kernels_of_shape) for kernels_of_shape in listed]
