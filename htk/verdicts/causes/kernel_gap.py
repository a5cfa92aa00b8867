"""How far kernels are from those that were measured at their size."""

from collections import Counter
from typing import Annotated, TypeGuard

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.mappings import Fields
from htk.base.names.rows_by import BySizes
from htk.base.schema import FLOAT64, INT64, STRING, TEXT, table
from htk.physics.detected import common_device
from htk.physics.kernel_time import BASES, FORMULA
from htk.physics.measured_costs import MEASURED_FAMILIES, MeasuredCosts, measure_costs
from htk.physics.op_costs import CostOrReason
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.kernels_by import NamingTables, SourceDepth, tell_apart
from htk.quantities.measures.op_work import OperatorWork, WorkTables
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.replayed import ReplayedRecording, replay_if_trusted
from htk.verdicts.causes.slow_kernels import at_measured_pace

_REPLAYED = 8  # rows, each by itself: an edited graph takes memory and time

RETURNS = table(
    name=(TEXT, "What the row stands for; by shape the operator, whose shapes and types follow."),
    family=(TEXT, "gemm, moe or attention; null: several."),
    shapes=(TEXT, "Shapes of its inputs; null: not asked by shape."),
    types=(TEXT, "Types of its inputs; null: not asked by shape."),
    count=(INT64, "Calls with GPU time, of sizes that the atlas answers."),
    device_ns=(INT64, "Sum of their durations."),
    device_time_pct=(FLOAT64, "Share of all GPU time."),
    typical_ns=(INT64, "Time of the median library, of all these calls."),
    typical_lo90_ns=(INT64, "Nine of ten such kernels take more than this …"),
    typical_hi90_ns=(INT64, "… and less than this."),
    best_ns=(INT64, "Time of the fastest library, of all these calls."),
    gap_ns=(INT64, "device_ns less typical_ns; negative: faster than typical."),
    gap_to_best_ns=(INT64, "device_ns less best_ns."),
    of_typical_pct=(FLOAT64, "device_ns of typical_ns: 200 takes twice as long."),
    basis=(TEXT, "What the times rest on; null: not asked by shape."),
    step_gain_ns=(
        INT64,
        "What a step gains, by replay, where these calls take the typical time; null: not asked, "
        "not by shape, or by formula.",
    ),
    step_gain_ns_lo90=(INT64, "Lower end of the 90 % interval of that."),
    step_gain_ns_hi90=(INT64, "Upper end of the 90 % interval of that."),
)


@analysis(
    returns=RETURNS, chart=Bar("name", "gap_ns", horizontal=True), needs=("cpu_ops", "kernels")
)
def kernel_gap(
    tables: WorkTables,
    naming: NamingTables,
    ranks: pa.Table,
    *,
    by: Annotated[
        BySizes, "What a row stands for; a call counts where its first kernel does."
    ] = "shape",
    source_depth: SourceDepth = 1,
    n: Annotated[int, "Rows to show, most gap first; 0: all."] = 20,
    gain: Annotated[
        bool, "What a step would gain at the typical times, by replay (of the first 8 rows)."
    ] = False,
    recording: Trace | None = None,
) -> pa.Table:
    """How far are products, experts and attention from what was measured at their size?

    Typical and best are of the median and of the fastest library at that size, of the kernel alone.
    GPU time counts for the innermost modelled operator round the launch, once.
    """
    cpu_ops = tables["cpu_ops"]
    work = OperatorWork.from_tables(tables)
    device = common_device(ranks)
    gpu = None if device is None else device.gpu
    measured = measure_costs(gpu, work.costs)
    is_answered = take_or(np.isfinite(measured.expected), work.kind, False) & work.modelled
    rows = np.flatnonzero(is_answered)
    calls = Groups.by_keys([work.row[rows], work.replay[rows]])
    first = rows[calls.first_row]
    kind = work.kind[first]
    call_ns = calls.sum(work.length[rows])
    key, names = kind, None
    if by != "shape":
        rows_by, _ = tell_apart(by, naming, source_depth)
        key, names = rows_by.codes[first], rows_by.texts
    groups = Groups.by_keys([key])
    called = cpu_ops.take(pa.array(work.row[first][groups.first_row]))
    total = int(work.length.sum())
    labels = [names[code] for code in groups.keys[:, 0].tolist()] if names else None
    answer = _build_gap_table(labels, groups, kind, call_ns, measured, called, work.costs, total)
    order = order_by(-answer["gap_ns"].to_numpy())
    chosen = order[:n] if n else order
    shown = answer.take(pa.array(chosen))
    replay: Fields = {}
    if gain:
        kinds = kind[groups.first_row][chosen].tolist() if by == "shape" else []
        shown, replay = _replay_gains(shown, [work.costs[k] for k in kinds], recording)
    sums = {name: float(np.sum(answer[name].to_numpy())) for name in ("device_ns", "gap_ns")}
    answered_pct_of_device_time = round(100 * sums["device_ns"] / total, 2) if total else None
    gap_pct_of_device_time = round(100 * sums["gap_ns"] / total, 2) if total else None
    return with_coverage(
        shown,
        gpu="not recorded, or not in the catalogue" if gpu is None else gpu.name,
        answered_pct_of_device_time=answered_pct_of_device_time,
        no_measured_neighbour_pct=_sum_unlike(work, measured, total),
        gap_pct_of_device_time=gap_pct_of_device_time,
        not_measured_ns=_tell_reasons(work, measured, is_answered),
        rows_left_out=answer.num_rows - shown.num_rows,
        **replay,
    )


def _replay_gains(
    shown: pa.Table, costs: list[CostOrReason], recording: Trace | None
) -> tuple[pa.Table, Fields]:
    """Return the rows with what a step gains at the typical time of each, and of all together."""
    replayed, why = replay_if_trusted(recording)
    if replayed is None:
        return shown, {"replay": why}
    rows = shown.to_pylist()
    for row, cost in zip(rows[:_REPLAYED], costs, strict=False):
        if row["basis"] != BASES[FORMULA]:
            row |= _measure_gain(replayed, at_measured_pace(of=cost))
    table = pa.Table.from_pylist(rows, schema=shown.schema)
    return table, {"replay": why, "step_gain_of_all": _measure_gain(replayed, at_measured_pace())}


def _measure_gain(replayed: ReplayedRecording, change: CauseEdit) -> Fields:
    gain = replayed.gain((change,))
    return {} if gain is None else gain.columns


def _build_gap_table(
    labels: list[str] | None,
    groups: Groups,
    kind: Ints,
    call_ns: Ints,
    measured: MeasuredCosts,
    called: pa.Table,
    costs: list[CostOrReason],
    total: int,
) -> pa.Table:
    """Return the answer, a row for each group of calls; `called`: the first call of each."""
    count = len(groups)
    time = groups.sum(call_ns)
    typical = np.rint(np.bincount(groups.group_ids, measured.expected[kind], count)).astype(
        np.int64
    )
    low = np.rint(np.bincount(groups.group_ids, measured.low[kind], count)).astype(np.int64)
    high = np.rint(np.bincount(groups.group_ids, measured.high[kind], count)).astype(np.int64)
    best = np.rint(np.bincount(groups.group_ids, measured.best[kind], count)).astype(np.int64)
    nothing = pa.nulls(count, STRING)
    by_shape = labels is None
    kinds = kind[groups.first_row].tolist() if by_shape else []
    bases: list[str | None] = [BASES[int(measured.nearness[k])] for k in kinds]
    return pa.table(
        {
            "name": called["name"] if labels is None else build_texts(labels),
            "family": _find_families(groups, kind, costs),
            "shapes": called["input_dims"] if by_shape else nothing,
            "types": called["input_types"] if by_shape else nothing,
            "count": build_numbers(groups.count, INT64),
            "device_ns": build_numbers(time, INT64),
            "device_time_pct": build_percent(time, np.full(count, total)),
            "typical_ns": build_numbers(typical, INT64),
            "typical_lo90_ns": build_numbers(low, INT64),
            "typical_hi90_ns": build_numbers(high, INT64),
            "best_ns": build_numbers(best, INT64),
            "gap_ns": build_numbers(time - typical, INT64),
            "gap_to_best_ns": build_numbers(time - best, INT64),
            "of_typical_pct": 100 * time / np.maximum(typical, 1.0),
            "basis": build_texts(bases or [None] * count),
            **{name: pa.nulls(count, INT64) for name in RETURNS.names if "step_gain" in name},
        },
        schema=RETURNS,
    )


def _find_families(groups: Groups, kind: Ints, costs: list[CostOrReason]) -> pa.Array:
    """Return the family of each group's calls, where all have the same."""
    families = [MEASURED_FAMILIES.index(c.family) if _is_matrix(c) else NONE for c in costs]
    of_call = np.array(families, np.int64)[kind]
    lowest = groups.min(of_call)
    highest = groups.max(of_call)
    return build_texts(
        [
            MEASURED_FAMILIES[low] if low == high else None
            for low, high in zip(lowest.tolist(), highest.tolist(), strict=True)
        ]
    )


def _is_matrix(cost: CostOrReason) -> TypeGuard[Cost]:
    return isinstance(cost, Cost) and cost.matrix and cost.family in MEASURED_FAMILIES


def _matrix_work(work: OperatorWork) -> Mask:
    """Return which rows are of products, experts and attention."""
    return np.array([*map(_is_matrix, work.costs), False])[work.kind] & work.modelled


def _sum_unlike(work: OperatorWork, measured: MeasuredCosts, total: int) -> float | None:
    """Return the share of all GPU time, in %, of products, experts and attention that no kernel
    measured on a GPU of this kind, in this format, stands beside: by formula at most."""
    is_measured = np.isin(measured.nearness, (NONE, FORMULA), invert=True)
    unlike = _matrix_work(work) & ~take_or(is_measured, work.kind, False)
    return round(100 * float(work.length[unlike].sum()) / total, 2) if total else None


def _tell_reasons(work: OperatorWork, measured: MeasuredCosts, is_answered: Mask) -> dict[str, int]:
    """Return the GPU time of products and attention that nothing measured stands beside, by why."""
    left = np.flatnonzero(_matrix_work(work) & ~is_answered)
    sums: Counter[str] = Counter()
    for kind, took in zip(work.kind[left].tolist(), work.length[left].tolist(), strict=True):
        sums[measured.reasons[kind] or ""] += took
    return dict(sums.most_common())
