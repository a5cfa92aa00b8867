"""How near each operator comes to what its GPU can do."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    match_texts,
    rank_alphabetically,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.names.kinds import is_copy_over_the_host_link
from htk.base.names.rows_by import BySizes
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.physics.detected import common_device, peak_tflops
from htk.physics.hardware import Gpu
from htk.physics.hardware import gpu as of_catalogue
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.breakdown import Pool, build_percent, pool_rows, who_columns
from htk.quantities.measures.gpu_counters import COLUMNS, SpanMeans
from htk.quantities.measures.kernels_by import NamingTables, SourceDepth, tell_apart
from htk.quantities.measures.op_work import (
    BEYOND_PEAK,
    FEWER_OPERATIONS,
    OperatorWork,
    WorkTables,
    coverage_facts,
    saving_activities,
    tf32_rows,
)

# What counters say, beside what shapes say.
MEASURED = {name: COLUMNS[name] for name in ("sm_active_pct", "memory_busy_pct")}
RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched it; null when pooled over steps."),
    name=(TEXT, "What the row stands for; by shape the operator that answers for the GPU time."),
    shapes=(TEXT, "Shapes of its inputs; null: not asked by shape."),
    types=(TEXT, "Types of its inputs; null: not asked by shape."),
    family=(TEXT, "gemm, attention, …; null: not modelled, or several."),
    count=(INT64, "Calls with GPU time."),
    kernels=(INT64, "GPU activities."),
    device_ns=(INT64, "Sum of their durations."),
    device_time_pct=(FLOAT64, "Share of all GPU time."),
    flops_per_call=(FLOAT64, "Operations of a modelled call (mean), as its kernels do them."),
    bytes_per_call=(FLOAT64, "Bytes of such a call (mean), each tensor moved once."),
    achieved_tflops=(FLOAT64, "1e12 operations a second of GPU time."),
    achieved_tbps=(FLOAT64, "1e12 bytes a second of GPU time."),
    flops_per_byte=(FLOAT64, "Arithmetic intensity."),
    bound=(
        TEXT,
        "compute, memory or launch: what would limit perfect kernels, of most of the time; null: "
        "unknown.",
    ),
    roofline_ns=(FLOAT64, "Time of a call (mean) at the GPU's peaks."),
    roofline_pct=(FLOAT64, "That time of the measured; over 100, memory-bound: from caches."),
    beyond_roofline_ns=(FLOAT64, "GPU time beyond the roofline, of all calls."),
    **MEASURED,
    note=(TEXT, "Why it is not modelled, or what is assumed; of several what most time is of."),
)


@analysis(
    returns=RETURNS, chart=Bar("name", "device_ns", horizontal=True), needs=("cpu_ops", "kernels")
)
def roofline(
    tables: WorkTables,
    naming: NamingTables,
    counters: Later,
    ranks: pa.Table,
    *,
    by: Annotated[
        BySizes, "What a row stands for; a call counts where its first kernel does."
    ] = "shape",
    source_depth: SourceDepth = 1,
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
    cpu_ops = tables["cpu_ops"]
    kernels = tables["kernels"]
    kernel_links = tables["kernel_links"]
    work = OperatorWork.from_tables(tables)
    rows = np.flatnonzero(work.row != NONE)
    who = pool_rows(per, kernels, kernel_links["step"])
    label = np.zeros(len(who), np.int64)
    labels = None
    if by != "shape":
        rows_by, _ = tell_apart(by, naming, source_depth)
        label, labels = rows_by.codes, rows_by.texts
    whole_call = Groups.by_keys([work.row[rows], work.replay[rows]])
    begun = rows[whole_call.first_row]
    groups = Groups.by_keys([who[rows], label[begun][whole_call.group_ids], work.kind[rows]])
    bearer = work.row[rows][groups.first_row]
    calls = groups.group_ids[whole_call.first_row]
    count = np.bincount(calls, minlength=len(groups)).astype(np.int64)
    time = groups.sum(work.length[rows])
    comm = _mark_chosen_groups(groups, match_texts(kernels["kind"], "comm".__eq__)[rows])
    kind_costs = [work.costs[k] for k in work.kind[rows][groups.first_row].tolist()]
    costs = [
        f if isinstance(f, Cost) and not c else None for f, c in zip(kind_costs, comm, strict=True)
    ]
    across = _mark_chosen_groups(
        groups, match_texts(kernels["name"], is_copy_over_the_host_link)[rows]
    )
    notes = [
        "communication" if c else f if isinstance(f, str) else _CROSSING if x else f.assumed
        for f, c, x in zip(kind_costs, comm, across, strict=True)
    ]
    device = of_catalogue(gpu) if gpu else _find_recorded_gpu(ranks)
    tf32 = tf32_rows(kernels, work, cpu_ops.num_rows)[bearer]
    limits = [
        (None, None) if x else _find_shortest_times(c, device, bool(t))
        for c, t, x in zip(costs, tf32.tolist(), across, strict=True)
    ]
    for k, saves in enumerate(_mark_chosen_groups(groups, saving_activities(work, kernels)[rows])):
        if saves:
            costs[k], notes[k] = None, FEWER_OPERATIONS
    for k, is_wrong in enumerate(_beyond_peak(costs, limits, count, time)):
        if is_wrong:
            costs[k], notes[k] = None, BEYOND_PEAK
    kind = np.arange(len(groups)) if labels is None else np.zeros(len(groups), np.int64)
    lines = Groups.by_keys([*groups.keys[:, :4].T, kind])
    cells = _Cells(costs, limits, count, time, groups.count)
    first = lines.first_row
    named = cpu_ops.select(["name", "input_dims", "input_types"]).take(pa.array(bearer[first]))
    if labels is not None:
        nothing = pa.chunked_array([build_texts([None] * len(lines))])
        own = pa.chunked_array(
            [build_texts([labels[code] for code in groups.keys[first, 3].tolist()])]
        )
        named = pa.table([own, nothing, nothing], names=named.column_names)
    activities = Groups.by_keys(lines.group_ids[groups.group_ids])
    took = lines.sum(time)
    most = _find_longest_cells(lines, time)
    answer = pa.table(
        [
            *who_columns(groups.keys[first]),
            *(named[c].combine_chunks() for c in named.column_names),
            build_texts(_find_families(lines, costs)),
            build_numbers(lines.sum(count), INT64),
            build_numbers(lines.sum(groups.count), INT64),
            build_numbers(took, INT64),
            build_percent(took, np.full(len(lines), int(work.length.sum()))),
            *cells.measured(lines, 1e3 * launch_us),
            *SpanMeans(counters(), kernels).of_groups(activities, rows, MEASURED),
            build_texts([notes[k] for k in most.tolist()]),
        ],
        schema=RETURNS,
    )
    ties = [rank_alphabetically(*codes_of(named[c])) for c in reversed(named.column_names)]
    order = np.lexsort((*ties, -took, *groups.keys[first, 2::-1].T))
    shown = answer.take(pa.array(order[:n] if n else order))
    return with_coverage(
        shown,
        gpu=device.name if device else _describe_unknown_gpu(ranks),
        rows_left_out=answer.num_rows - shown.num_rows,
        **coverage_facts(work, cpu_ops, kernels, kernel_links),
    )


def _mark_chosen_groups(groups: Groups, chosen: Mask) -> list[bool]:
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


def _find_recorded_gpu(ranks: pa.Table) -> Gpu | None:
    """Return the GPU of the ranks, if all have the same."""
    device = common_device(ranks)
    return None if device is None else device.gpu


def _describe_unknown_gpu(ranks: pa.Table) -> str:
    names = sorted({name for name in ranks["device_name"].to_pylist() if name})
    if not names:
        return "not recorded; give --gpu"
    return f"{', '.join(names)}: several, or not in the catalogue; give --gpu"


def _find_shortest_times(
    cost: Cost | None, device: Gpu | None, tf32: bool
) -> tuple[float | None, float | None]:
    """Shortest times of a call, in ns: of its operations, of its bytes."""
    if cost is None or device is None:
        return None, None
    peak = peak_tflops(device, cost.dtype, matrix=cost.matrix, tf32=tf32)
    compute = cost.flops / peak / 1e3 if peak else (None if cost.matrix else 0.0)
    return compute, cost.bytes / device.memory_gbps


def _find_longest_cells(lines: Groups, time: Ints) -> Ints:
    """Return the cell with the most time of each line."""
    order = order_by(lines.group_ids, -time)
    return order[mark_heads(lines.group_ids[order])]


def _find_families(lines: Groups, costs: list[Cost | None]) -> list[str | None]:
    """Return the family of the modelled calls of each line, where all have the same."""
    families: list[set[str]] = [set() for _ in range(len(lines))]
    for line, cost in zip(lines.group_ids.tolist(), costs, strict=True):
        families[line] |= {cost.family} if cost else set()
    return [next(iter(names)) if len(names) == 1 else None for names in families]


class _Cells:
    """Calls that are alike, of one line of the answer: what they did, and took."""

    def __init__(
        self,
        costs: list[Cost | None],
        limits: list[tuple[float | None, float | None]],
        count: Ints,
        time: Ints,
        kernels: Ints,
    ) -> None:
        self.is_modelled = np.array([cost is not None for cost in costs], bool)
        self.flops = count * np.array([c.flops if c else 0 for c in costs], np.float64)
        self.moved = count * np.array([c.bytes if c else 0 for c in costs], np.float64)
        self.compute, self.memory = (
            np.array(
                [
                    limit if cost else (None, None)
                    for cost, limit in zip(costs, limits, strict=True)
                ],
                np.float64,
            )
            .reshape(-1, 2)
            .T
        )
        self.count = count
        self.time = time
        self.kernels = kernels

    def measured(self, lines: Groups, launch_ns: float) -> list[pa.Array]:
        """Return the columns from flops_per_call to beyond_roofline_ns."""
        is_bounded = ~np.isnan(self.compute + self.memory)
        least = np.where(is_bounded, self.count * np.fmax(self.compute, self.memory), 0)

        def sum_lines(values: Ints | Floats, chosen: Mask = self.is_modelled) -> Floats:
            weights = np.where(chosen, values, 0).astype(np.float64)
            return np.asarray(np.bincount(lines.group_ids, weights, len(lines)), np.float64)

        def build_quotient(part: Floats, divisor: Floats, factor: float = 1) -> pa.Array:
            return build_numbers(
                factor * part / np.where(divisor > 0, divisor, 1), FLOAT64, divisor > 0
            )

        flops = sum_lines(self.flops)
        moved = sum_lines(self.moved)
        took = sum_lines(self.time)
        calls = sum_lines(self.count)
        bounded_ns = sum_lines(self.time, is_bounded)
        beyond = sum_lines(np.maximum(self.time - least, 0), is_bounded)
        kind = np.where(self.compute > self.memory, 0, 1)
        kind[least < launch_ns * self.kernels] = 2
        longest = _find_longest_cells(lines, np.where(is_bounded, self.time, NONE))
        kind[~is_bounded] = len(_BOUNDS) - 1
        bounds = [_BOUNDS[k] for k in kind[longest].tolist()]
        return [
            build_quotient(flops, calls),
            build_quotient(moved, calls),
            build_quotient(flops, took, 1e-3),
            build_quotient(moved, took, 1e-3),
            build_quotient(flops, moved),
            build_texts(bounds),
            build_quotient(sum_lines(least), sum_lines(self.count, is_bounded)),
            build_quotient(sum_lines(least), bounded_ns, 100),
            build_numbers(beyond, FLOAT64, is_bounded[longest]),
        ]


_BOUNDS = ("compute", "memory", "launch", None)
