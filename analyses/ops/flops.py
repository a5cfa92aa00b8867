"""How much work a step does, and what share of the GPU's peak that is."""

from collections import Counter
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    match_texts,
    read_booleans,
    read_keys,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.names.rows_by import By
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.physics.detected import list_devices, peak_tflops
from htk.physics.hardware import Gpu
from htk.physics.hardware import gpu as of_catalogue
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.breakdown import Per, build_percent, chosen_windows, sum_windows
from htk.quantities.measures.kernels_by import NamingTables, SourceDepth, tell_apart
from htk.quantities.measures.op_work import OperatorWork, WorkTables, coverage_facts, tf32_rows

FlopsBy = Literal["all", By]

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    name=(TEXT, "What the row stands for; null: all that the step or window launched."),
    window_ns=(INT64, "The GPU period of the step, or the whole window."),
    device_ns=(INT64, "Sum of GPU activities that the step launched."),
    modelled_pct=(FLOAT64, "Share of that whose work is known."),
    model_flops=(FLOAT64, "Operations that the model asks for: without recomputation."),
    hardware_flops=(FLOAT64, "Operations that kernels do; of convolutions the direct count."),
    matrix_pct=(FLOAT64, "Share of hardware_flops done by products, attention, convolution."),
    modelled_bytes=(FLOAT64, "Bytes moved, each tensor of each call once."),
    achieved_tflops=(FLOAT64, "model_flops over the window, 1e12 a second."),
    achieved_tbps=(FLOAT64, "modelled_bytes over the window, 1e12 a second."),
    dtype=(TEXT, "Type of most matrix operations of the window: whose peak_tflops counts."),
    peak_tflops=(FLOAT64, "Dense peak_tflops of that type; null: GPU unknown."),
    mfu_pct=(
        FLOAT64,
        "model_flops over window times peak; null above 100, which is an error.",
    ),
    hfu_pct=(FLOAT64, "hardware_flops over window times peak; null above 100."),
)
_MFU = (
    "model FLOPs (2 per multiply-add; attention by the pairs that its mask leaves; without "
    "recomputation) over GPU period times dense peak of the type of most matrix operations"
)


def mean_mfu(answer: pa.Table) -> float | None:
    """Return the mean MFU over GPUs, in percent; None where that of one is not known."""
    shares = answer["mfu_pct"]
    return None if shares.null_count else pc.mean(shares).as_py()


@analysis(returns=RETURNS, chart=Bar("rank", "mfu_pct"), needs=("rank_windows",))
def flops(
    tables: WorkTables,
    naming: NamingTables,
    rank_windows: pa.Table,
    step_windows: pa.Table,
    ranks: pa.Table,
    *,
    by: Annotated[
        FlopsBy, "What a row stands for; all: all work of what `per` says, to which others add up."
    ] = "all",
    source_depth: SourceDepth = 1,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
    gpu: Annotated[
        str | None, "GPU of the hardware catalogue, e.g. a100-80gb; by default the recorded one."
    ] = None,
    peak_tflops: Annotated[
        float | None, "Peak to compare with, in TFLOP/s; by default the GPU's."
    ] = None,
) -> pa.Table:
    """How much work is done, and what share of the peak is that (MFU)?

    Work is that of the operators that launched GPU activities, by their shapes; a step has the work
    that it launched, and the time of its GPU period. The work of a call counts where its first
    kernel does.
    """
    cpu_ops = tables["cpu_ops"]
    kernels = tables["kernels"]
    kernel_links = tables["kernel_links"]
    if not cpu_ops.num_rows:
        raise MissingTable("no operators, so no shapes", "cpu_ops")
    if not match_texts(cpu_ops["input_dims"], bool).any():
        raise MissingTable("no shapes of operators were recorded", "shapes")
    work = OperatorWork.from_tables(tables)
    columns, sums = sum_windows(
        per,
        (windows := chosen_windows(per, rank_windows, step_windows)),
        {"window": read_lengths(windows)},
    )
    keys = np.column_stack([_read_key(columns[c]) for c in ("rank", "device", "cycle", "step")])
    answer_row = _find_rows(keys, kernels, kernel_links, per)
    tf32 = tf32_rows(kernels, work, cpu_ops.num_rows)
    added = _add_work(work, answer_row, len(keys), tf32)
    chosen = of_catalogue(gpu) if gpu else None
    gpus = _find_gpus(ranks, chosen)
    peaks = [
        peak_tflops or _find_peak(gpus.get(int(rank)), dtype)
        for rank, dtype in zip(keys[:, 0].tolist(), added.dtype, strict=True)
    ]
    shaped = _of_ranks_with_shapes(keys[:, 0], cpu_ops)
    window = np.arange(len(keys))
    names: list[str | None] = [None] * len(keys)
    dtypes = added.dtype
    if by != "all":
        rows_by, _ = tell_apart(by, naming, source_depth)
        inside = np.flatnonzero(answer_row != NONE)
        parts = Groups.by_keys([answer_row[inside], rows_by.codes[inside]])
        part_of = fill_none(len(answer_row))
        part_of[inside] = parts.group_ids
        added = _add_work(work, part_of, len(parts), tf32)
        order = order_by(parts.keys[:, 0], -added.hardware, -added.device)
        added = added.take(order)
        window = parts.keys[order, 0]
        names = [rows_by.texts[code] for code in parts.keys[order, 1].tolist()]
    table_ = pa.table(
        [
            *(
                columns[c].take(pa.array(window))
                for c in ("rank", "device", "cycle", "step", "complete")
            ),
            build_texts(names),
            build_numbers(sums["window"][window], INT64),
            build_numbers(added.device, INT64),
            build_percent(added.modelled, np.where(shaped[window], added.device, 0)),
            *_build_rate_columns(
                added,
                sums["window"][window],
                [dtypes[k] for k in window.tolist()],
                [peaks[k] for k in window.tolist()],
                shaped[window],
            ),
        ],
        schema=RETURNS,
    )
    return with_coverage(
        table_,
        mfu=_MFU,
        gpu=sorted({device.name for device in gpus.values() if device})
        or "not in the catalogue; give --gpu or --peak-tflops",
        recomputed_ns=int(work.length[work.modelled & work.recompute[work.row]].sum()),
        carry_in_ns=int(work.length[read_booleans(kernel_links["carry_in"])].sum()),
        **coverage_facts(work, cpu_ops, kernels, kernel_links),
    )


class _Added:
    """Sums for each row of the answer."""

    def __init__(self, length: int) -> None:
        self.device = np.zeros(length, np.int64)
        self.modelled = np.zeros(length, np.int64)
        self.model = np.zeros(length)
        self.hardware = np.zeros(length)
        self.matrix = np.zeros(length)
        self.moved = np.zeros(length)
        self.by_dtype: list[Counter[str]] = [Counter() for _ in range(length)]

    def take(self, rows: Ints) -> "_Added":
        """Return the sums of some rows."""
        chosen = _Added(0)
        for name in ("device", "modelled", "model", "hardware", "matrix", "moved"):
            setattr(chosen, name, getattr(self, name)[rows])
        return chosen

    @property
    def dtype(self) -> list[str | None]:
        return [c.most_common(1)[0][0] if c else None for c in self.by_dtype]


def _add_work(work: OperatorWork, rows: Ints, length: int, tf32: Mask) -> _Added:
    added = _Added(length)
    inside = rows != NONE
    np.add.at(added.device, rows[inside], work.length[inside])
    modelled = inside & work.modelled
    np.add.at(added.modelled, rows[modelled], work.length[modelled])
    row, first = work.first_activity(modelled)  # a call counts where it began
    kinds = [rows[first], work.kind[first], work.recompute[row], tf32[row]]
    alike = Groups.by_keys(kinds)
    for (answer_row, kind, again, fast), many in zip(
        alike.keys.tolist(), alike.count.tolist(), strict=True
    ):
        cost = work.costs[kind]
        assert isinstance(cost, Cost)
        added.hardware[answer_row] += many * cost.flops
        added.model[answer_row] += 0 if again else many * cost.of_model
        added.moved[answer_row] += many * cost.bytes
        if cost.matrix:
            added.matrix[answer_row] += many * cost.flops
            named = "tf32" if fast and cost.dtype == "fp32" else str(cost.dtype)
            added.by_dtype[answer_row][named] += many * cost.flops
    return added


def _of_ranks_with_shapes(rank: Ints, cpu_ops: pa.Table) -> Mask:
    recorded = read_numbers(cpu_ops["rank"], NONE)[match_texts(cpu_ops["input_dims"], bool)]
    return np.isin(rank, np.unique(recorded))


def _build_rate_columns(
    added: _Added,
    window: Ints,
    dtypes: list[str | None],
    peaks: list[float | None],
    shaped: Mask,
) -> list[pa.Array]:
    """Return the columns that shapes tell; null for ranks that recorded none."""
    some = np.maximum(window, 1)
    top = np.array([p or 0.0 for p in peaks])
    has = (top > 0) & (window > 0) & shaped
    timed = (window > 0) & shaped

    def build_share(part: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pa.Array:
        percents = 100 * part / (some * np.where(has, top, 1.0) * 1e3)
        return build_numbers(percents, FLOAT64, has & (percents <= 100))  # more cannot be

    done = added.hardware > 0
    return [
        build_numbers(added.model, FLOAT64, shaped),
        build_numbers(added.hardware, FLOAT64, shaped),
        build_numbers(100 * added.matrix / np.where(done, added.hardware, 1), FLOAT64, done),
        build_numbers(added.moved, FLOAT64, shaped),
        build_numbers(added.model / some / 1e3, FLOAT64, timed),
        build_numbers(added.moved / some / 1e3, FLOAT64, timed),
        build_texts(dtypes),
        build_numbers(top, FLOAT64, top > 0),
        build_share(added.model),
        build_share(added.hardware),
    ]


def _read_key(column: pa.Array) -> Ints:
    return read_keys(column)


def _find_rows(keys: Ints, kernels: pa.Table, kernel_links: pa.Table, per: Per) -> Ints:
    """Row of the answer of each activity, or NONE."""
    rank = read_keys(kernels["rank"])
    device = read_keys(kernels["device"])
    step = fill_none(len(rank))
    if per == "step":
        step = read_keys(kernel_links["step"])
    cycle = np.where(step == NONE, NONE, read_numbers(kernels["cycle"], 0))
    rows = row_of(keys, np.column_stack([rank, device, cycle, step]))
    return np.where((step == NONE) & (per == "step"), NONE, rows)


def _find_gpus(ranks: pa.Table, chosen: Gpu | None) -> dict[int, Gpu | None]:
    """Return the GPU of each rank: the chosen one, or the recorded one."""
    who = [NONE if rank is None else int(rank) for rank in ranks["rank"].to_pylist()]
    return {r: chosen or d.gpu for r, d in zip(who, list_devices(ranks), strict=True)}


def _find_peak(device: Gpu | None, dtype: str | None) -> float | None:
    if device is None or dtype is None:
        return None
    return peak_tflops(
        device, "fp32" if dtype == "tf32" else dtype, matrix=True, tf32=dtype == "tf32"
    )
