"""How near each operator comes to what its GPU can do."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import alphabetical, codes_of, matching, number, texts
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.physics.detected import common_device, peak_tflops
from htk.physics.hardware import Gpu
from htk.physics.hardware import gpu as of_catalogue
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.breakdown import Pool, percent, pooled, who_columns
from htk.quantities.measures.op_work import (
    BEYOND_PEAK,
    FEWER_OPERATIONS,
    OperatorWork,
    coverage_facts,
    saving_activities,
    tf32_rows,
)

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched it; null when pooled over steps."),
    op=(TEXT, "Operator that answers for the GPU time."),
    shapes=(TEXT, "Shapes of its inputs."),
    types=(TEXT, "Types of its inputs."),
    family=(TEXT, "gemm, attention, …; null: not modelled."),
    count=(INT64, "Calls with GPU time."),
    kernels=(INT64, "GPU activities."),
    device_ns=(INT64, "Sum of their durations."),
    device_time_pct=(FLOAT64, "Share of all GPU time."),
    flops_per_call=(FLOAT64, "Operations of a call, as its kernels do them."),
    bytes_per_call=(FLOAT64, "Bytes of a call, each tensor moved once."),
    achieved_tflops=(FLOAT64, "1e12 operations a second of GPU time."),
    achieved_tbps=(FLOAT64, "1e12 bytes a second of GPU time."),
    flops_per_byte=(FLOAT64, "Arithmetic intensity."),
    bound=(TEXT, "compute, memory or launch: what would limit perfect kernels; null: unknown."),
    roofline_ns=(FLOAT64, "Time of a call at the GPU's peaks."),
    roofline_pct=(FLOAT64, "That time of the measured; over 100, memory-bound: from caches."),
    beyond_roofline_ns=(FLOAT64, "GPU time beyond the roofline, of all calls."),
    note=(TEXT, "Why it is not modelled; or what is assumed."),
)


@analysis(
    returns=RETURNS, chart=Bar("op", "device_ns", horizontal=True), needs=("cpu_ops", "kernels")
)
def roofline(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    annotations: pa.Table,
    op_passes: pa.Table,
    ranks: pa.Table,
    *,
    per: Annotated[Pool, "What a row covers: all ranks, a rank, or each of its steps."] = "all",
    gpu: Annotated[
        str | None, "GPU of the hardware catalogue, e.g. a100-80gb; by default the recorded one."
    ] = None,
    launch_us: Annotated[
        float, "Time of a launch: a kernel that could run in less is launch-bound."
    ] = 2,
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """How close does each operator come to what its GPU can do?

    Operations and bytes follow from names and shapes; GPU time counts for the innermost modelled
    operator round the launch, once. Roofline time is the longer of operations at the dense peak of
    the type and bytes at the memory's bandwidth.
    """
    work = OperatorWork.of(
        cpu_ops, op_links, kernels, kernel_links, launches, launch_links, annotations, op_passes
    )
    rows = np.flatnonzero(work.row != NONE)
    who = pooled(per, kernels, kernel_links["step"])
    groups = Groups.by_keys([who[rows], work.kind[rows]])
    bearer = work.row[rows][groups.first_row]
    _, begun = work.first_activity(np.ones(len(work.row), bool))
    calls = groups.group_ids[np.searchsorted(rows, begun)]
    count = np.bincount(calls, minlength=len(groups)).astype(np.int64)
    time = groups.sum(work.length[rows])
    comm = _some(groups, matching(kernels["kind"], "comm".__eq__)[rows])
    kind_costs = [work.costs[k] for k in work.kind[rows][groups.first_row].tolist()]
    costs = [
        f if isinstance(f, Cost) and not c else None for f, c in zip(kind_costs, comm, strict=True)
    ]
    across = _some(groups, matching(kernels["name"], _crosses)[rows])
    notes = [
        "communication" if c else f if isinstance(f, str) else _CROSSING if x else f.assumed
        for f, c, x in zip(kind_costs, comm, across, strict=True)
    ]
    device = of_catalogue(gpu) if gpu else _recorded(ranks)
    tf32 = tf32_rows(kernels, work, cpu_ops.num_rows)[bearer]
    limits = [
        (None, None) if x else _limits(c, device, bool(t))
        for c, t, x in zip(costs, tf32.tolist(), across, strict=True)
    ]
    for k, saves in enumerate(_some(groups, saving_activities(work, kernels)[rows])):
        if saves:
            costs[k], notes[k] = None, FEWER_OPERATIONS
    for k, is_wrong in enumerate(_beyond_peak(costs, limits, count, time)):
        if is_wrong:
            costs[k], notes[k] = None, BEYOND_PEAK
    measured = _measured(costs, limits, count, time, groups.count, 1e3 * launch_us)
    named = cpu_ops.select(["name", "input_dims", "input_types"]).take(pa.array(bearer))
    total = np.full(len(groups), int(work.length.sum()))
    answer = pa.table(
        [
            *who_columns(groups.keys),
            *(named[c].combine_chunks() for c in named.column_names),
            texts([c.family if c else None for c in costs]),
            number(count, INT64),
            number(groups.count, INT64),
            number(time, INT64),
            percent(time, total),
            *measured,
            texts(notes),
        ],
        schema=RETURNS,
    )
    ties = [alphabetical(*codes_of(named[c])) for c in reversed(named.column_names)]
    order = np.lexsort((*ties, -time, *groups.keys[:, 2::-1].T))
    shown = answer.take(pa.array(order[:n] if n else order))
    return with_coverage(
        shown,
        gpu=device.name if device else _unknown(ranks),
        rows_left_out=answer.num_rows - shown.num_rows,
        **coverage_facts(work, cpu_ops, kernels, kernel_links),
    )


def _some(groups: Groups, chosen: Mask) -> list[bool]:
    """Return which groups hold a chosen row."""
    held: list[bool] = (groups.max(chosen.astype(np.int64)) > 0).tolist()
    return held


_CROSSING = "copy between host and GPU: no roofline of the GPU's memory"


def _beyond_peak(
    costs: list[Cost | None],
    limits: list[tuple[float | None, float | None]],
    count: Ints,
    time: Ints,
) -> list[bool]:
    """Return which rows did more operations than their GPU can, which proves an error."""
    return [
        cost is not None and (compute or 0.0) * calls > took
        for cost, (compute, _), calls, took in zip(
            costs, limits, count.tolist(), time.tolist(), strict=True
        )
    ]


def _crosses(name: str) -> bool:
    return any(way in name for way in ("HtoD", "DtoH", "HostToDevice", "DeviceToHost"))


def _recorded(ranks: pa.Table) -> Gpu | None:
    """Return the GPU of the ranks, if all have the same."""
    device = common_device(ranks)
    return None if device is None else device.gpu


def _unknown(ranks: pa.Table) -> str:
    names = sorted({name for name in ranks["device_name"].to_pylist() if name})
    if not names:
        return "not recorded; give --gpu"
    return f"{', '.join(names)}: several, or not in the catalogue; give --gpu"


def _limits(cost: Cost | None, device: Gpu | None, tf32: bool) -> tuple[float | None, float | None]:
    """Shortest times of a call, in ns: of its operations, of its bytes."""
    if cost is None or device is None:
        return None, None
    peak = peak_tflops(device, cost.dtype, matrix=cost.matrix, tf32=tf32)
    compute = cost.flops / peak / 1e3 if peak else (None if cost.matrix else 0.0)
    return compute, cost.bytes / device.memory_gbps


def _measured(
    costs: list[Cost | None],
    limits: list[tuple[float | None, float | None]],
    count: Ints,
    time: Ints,
    kernels: Ints,
    launch_ns: float,
) -> list[pa.Array]:
    """Return the columns from flops_per_call to beyond_roofline_ns."""
    rows = []
    for cost, (compute, memory), calls, took, many in zip(  # a row of the answer each
        costs, limits, count.tolist(), time.tolist(), kernels.tolist(), strict=True
    ):
        if cost is None:
            rows.append((None,) * 9)
            continue
        flops, moved = float(cost.flops), float(cost.bytes)
        rates = (flops * calls / took / 1e3, moved * calls / took / 1e3) if took else (None, None)
        intensity = flops / moved if moved else None
        if compute is None or memory is None:
            rows.append((flops, moved, *rates, intensity, None, None, None, None))
            continue
        best = max(compute, memory)
        bound = "compute" if compute > memory else "memory"
        if best * calls / many < launch_ns:
            bound = "launch"
        share = 100 * best * calls / took if took else None
        lost = max(took - best * calls, 0.0)
        rows.append((flops, moved, *rates, intensity, bound, best, share, lost))
    columns = list(zip(*rows, strict=True)) or [()] * 9
    return [texts(list(c)) if k == 5 else pa.array(c, FLOAT64) for k, c in enumerate(columns)]
