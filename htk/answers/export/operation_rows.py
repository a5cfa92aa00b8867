"""Operation-level rows of a job, cut from its profiles.

A forward or backward is what the GPU computes from its first to its last kernel, in the order of
launches, on the stream that computes most; each reduction of gradients is a row, so is that of
their norm, and the optimizer. Where parameters are sharded, each gather and reduction is a row, and
ends the piece of the pass that was launched before it: a unit of FSDP. In a pipeline each call that
sends or receives is a row and ends the pass of a micro-batch. Ranks that share layers are one
worker. Times are on one clock.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.answers.export.pipeline_rows import CUTTING, pipeline_rows
from htk.answers.export.reductions import reductions_of_gradients, types_of_reductions
from htk.answers.export.worker_groups import WorkerGroups
from htk.base.columns.arrow import (
    build_numbers,
    decode_texts,
    match_texts,
    number_or_null,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.core.humanize import format_int_ranges
from htk.base.errors import MissingTable
from htk.base.names.phases import BACKWARD, FORWARD, OPTIMIZER
from htk.base.schema import INT32, INT64, JOB_OPERATIONS
from htk.base.schema.operation_types import CODES, ROW_TYPES
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.derived.messages import one_row_a_message
from htk.quantities.measures.passes import phase_codes
from htk.traces.trace.trace import Trace

_TYPE = {
    FORWARD: CODES["forward_compute"],
    BACKWARD: CODES["backward_compute"],
    OPTIMIZER: CODES["optimizer"],
}
_CLIP = CODES["clip_grads"]
_SHARDING = (CODES["params_all_gather"], CODES["grads_reduce_scatter"])
# What FSDP copies into and out of its buffers, on the stream that computes.
_OF_SHARDING = re.compile(r"split_with_sizes_copy|chunk_cat")
_NEVER = np.iinfo(np.int64).min


def write_operations(trace: Trace, folder: Path) -> tuple[Path, int]:
    """Write FOLDER/operations.parquet; returns the file and its number of rows."""
    from pyarrow import parquet

    rows = cut_operations(trace)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "operations.parquet"
    parquet.write_table(rows.drop_columns(["cycle", "index_in_type"]), path, compression="zstd")
    return path, rows.num_rows


def cut_operations(trace: Trace) -> pa.Table:
    """Return a row for each piece of a forward and backward, each gather, reduction and optimizer
    of each worker's steps."""
    kernels = trace.need("kernels")
    links = trace.tables["kernel_links"]
    _refuse_repeated_steps(trace)
    rank = read_numbers(kernels["rank"], NONE)
    step = read_numbers(links["step"], NONE)
    phase = phase_codes(trace.tables["kernel_passes"])
    comm = _Collectives.from_trace(trace, phase, step)
    inside = (rank >= 0) & (step >= 0) & np.isin(rank, comm.groups.workers)
    inside[comm.within] = False
    compute = match_texts(kernels["kind"], "compute".__eq__) & np.isin(phase, list(_TYPE)) & inside
    reduction = match_texts(kernels["kind"], "comm".__eq__) & inside
    if not (compute & (phase == BACKWARD)).any():
        raise MissingTable(
            "no step has forward and backward kernels; record CPU and GPU activities and call "
            "profiler.step() after each iteration"
        )
    start, end = read_times(kernels)
    if comm.is_sharded:
        compute &= _on_main_stream(kernels, compute, end - start)
    shift = compute_corrections(trace.tables["rank_clocks"], rank, start)
    start = start + shift
    end = end + shift
    launched = read_numbers(links["launch_start_ns"], _NEVER)
    cuts = np.unique(comm.kernel[np.isin(comm.type, comm.cutting) & reduction[comm.kernel]])
    copies = comm.by_unit & match_texts(kernels["name"], lambda n: bool(_OF_SHARDING.search(n)))
    runs = _find_runs(rank, step, phase, launched, compute, cuts, copies, by_unit=comm.by_unit)
    single = comm.kernel[reduction[comm.kernel]]
    type_ = comm.type[reduction[comm.kernel]]
    columns = {
        "rank": np.append(rank[runs.first], rank[single]),
        "step": np.append(step[runs.first], step[single]),
        "type": np.append(runs.type, type_),
        "micro_batch": np.append(runs.batch, np.full(len(single), -1)),
        "chunk": np.append(runs.piece, np.zeros(len(single), np.int64)),
        "launched": np.append(launched[runs.first], launched[single]),
        "start_ns": np.append(runs.over(start, np.minimum), start[single]),
        "end_ns": np.append(runs.over(end, np.maximum), end[single]),
    }
    worker = np.searchsorted(comm.groups.workers, columns["rank"])
    columns["dp_rank"] = comm.groups.replica[worker]
    columns["stage"] = comm.groups.stage[worker]
    columns = reductions_of_gradients(columns)
    if (pipelines := comm.groups.pipelines) is not None:
        stages = pipelines.ranks.shape[1]
        columns = pipeline_rows(columns, stages, is_interleaved=pipelines.is_interleaved)
    return _build_rows_table(columns)


@dataclass(frozen=True)
class _Collectives:
    """What kernels communicate: a row for each message of one that sends and receives several."""

    groups: WorkerGroups
    kernel: Ints
    type: Ints  # of operation
    within: Ints  # kernels that are part of a layer's computation

    @classmethod
    def from_trace(cls, trace: Trace, phase: Ints, step: Ints) -> "_Collectives":
        kernels = trace.tables["kernels"]
        table, _ = one_row_a_message(trace.tables["collectives"])
        kernel = take_or(np.arange(len(phase)), row_of(event_keys(kernels), event_keys(table)))
        launched = kernel != NONE
        in_forward = launched & (phase[kernel] == FORWARD)
        after_backward = launched & _behind_backward(trace, phase, step)[kernel]
        groups = WorkerGroups.from_collectives(
            table, in_forward, after_backward, np.where(launched, step[kernel], NONE), trace.ranks
        )
        type_ = groups.type
        if groups.pipelines is None:
            type_ = types_of_reductions(trace, table, kernel, type_, in_forward)
        chosen = launched & (type_ != NONE)
        return cls(groups, kernel[chosen], type_[chosen], kernel[groups.within & launched])

    @property
    def is_sharded(self) -> bool:
        return bool(np.isin(self.type, _SHARDING).any())

    @property
    def by_unit(self) -> bool:
        """Whether gathers and reductions end the pieces of a pass."""
        return self.is_sharded and self.groups.pipelines is None

    @property
    def cutting(self) -> tuple[int, ...]:
        """Return the types of operation that end a run of kernels."""
        return (*_SHARDING, _CLIP) if self.groups.pipelines is None else CUTTING


def _behind_backward(trace: Trace, phase: Ints, step: Ints) -> Mask:
    """Return which kernels were launched behind a computation of a backward, not of a forward."""
    kernels = trace.tables["kernels"]
    rank = read_numbers(kernels["rank"], NONE)
    launched = read_numbers(trace.tables["kernel_links"]["launch_start_ns"], _NEVER)
    passes = match_texts(kernels["kind"], "compute".__eq__) & np.isin(phase, [FORWARD, BACKWARD])
    order = order_by(rank, step, launched)
    last = np.maximum.accumulate(np.where(passes[order], np.arange(len(order)), 0))
    before = order[last]
    behind = np.empty(len(order), bool)
    of_step = passes[before] & (rank[before] == rank[order]) & (step[before] == step[order])
    behind[order] = of_step & (phase[before] == BACKWARD)
    return behind


def _on_main_stream(kernels: pa.Table, compute: Mask, duration: Ints) -> Mask:
    """Return which kernels are on the stream of their rank that computes most."""
    streams = Groups.by_keys(
        [read_numbers(kernels[name], NONE) for name in ("rank", "device", "stream")]
    )
    time = streams.sum(np.where(compute, duration, 0))
    rank = streams.keys[:, 0]
    order = order_by(rank, -time)
    main = order[np.append(True, np.diff(rank[order]) != 0)]
    return np.isin(streams.group_ids, main)


def _refuse_repeated_steps(trace: Trace) -> None:
    """Refuse steps of equal number in several cycles: rows have no cycle to tell them apart."""
    windows = trace.tables["step_windows"]
    keys = np.column_stack([read_numbers(windows[c], NONE) for c in ("rank", "step", "cycle")])
    distinct = np.unique(keys[keys[:, 1] >= 0], axis=0)
    if len(distinct) > len(np.unique(distinct[:, :2], axis=0)):
        raise MissingTable(
            f"ranks have steps of equal number in several cycles; choose one with --cycles: "
            f"{format_int_ranges(np.unique(distinct[:, 2]).tolist())}"
        )


class _Runs:
    """Neighbouring kernels of one rank, step and phase, in the order of their launches."""

    def __init__(self, order: Ints, starts: Ints, type_: Ints, batch: Ints, piece: Ints) -> None:
        self._order = order
        self._starts = starts
        self.first = order[starts]
        self.type = type_
        self.batch = batch
        self.piece = piece

    def over(self, values: Ints, reduce: np.ufunc) -> Ints:
        """Return the least or greatest value of each run."""
        return np.asarray(reduce.reduceat(values[self._order], self._starts))


def _find_runs(
    rank: Ints,
    step: Ints,
    phase: Ints,
    launched: Ints,
    chosen: Mask,
    cuts: Ints,
    copies: Mask,
    *,
    by_unit: bool,
) -> _Runs:
    """Return the runs; a collective of `cuts` that was launched in between ends one, and copies
    are runs of their own, since they wait for collectives. Runs by unit are pieces of a pass, all
    others passes."""
    rows = np.append(np.flatnonzero(chosen), cuts)
    is_cut = np.append(np.zeros(len(rows) - len(cuts), bool), np.ones(len(cuts), bool))
    merged = order_by(rank[rows], step[rows], launched[rows])
    order = rows[merged]
    passed = np.cumsum(is_cut[merged])
    order = order[~is_cut[merged]]
    passed = passed[~is_cut[merged]]
    keys = np.stack([rank[order], step[order], phase[order], passed, copies[order]])
    passes = np.append(True, (np.diff(keys[: 3 if by_unit else 4]) != 0).any(axis=0))
    starts = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0)))
    of_rank, of_step, of_phase = keys[:3, starts]
    type_ = np.array([_TYPE.get(k, -1) for k in range(int(phase.max()) + 1)])[of_phase]
    first = passes[starts]  # of its pass
    position = np.arange(len(starts))
    piece = position - np.maximum.accumulate(np.where(first, position, 0))
    batch = fill_none(len(starts))
    fresh = np.append(True, (np.diff(of_rank) != 0) | (np.diff(of_step) != 0))
    for code in (_TYPE[FORWARD], _TYPE[BACKWARD]):
        begins = (type_ == code) & first
        before = np.cumsum(begins) - begins
        base = np.maximum.accumulate(np.where(fresh, before, 0))
        of_type = type_ == code
        batch[of_type] = (np.cumsum(begins) - 1 - base)[of_type]
    return _Runs(order, starts, type_, batch, piece)


def _build_rows_table(columns: dict[str, Ints]) -> pa.Table:
    length = len(columns["rank"])
    filled = {
        "rank": build_numbers(columns["rank"], INT32),
        "cycle": build_numbers(np.zeros(length, np.int64), INT32),
        "dp_rank": build_numbers(columns["dp_rank"], INT32),
        "stage": build_numbers(columns["stage"], INT32),
        "chunk": number_or_null(columns["chunk"], INT32),
        "micro_batch": number_or_null(columns["micro_batch"], INT32),
        "step": build_numbers(columns["step"], INT32),
        "index_in_type": pa.nulls(length, INT32),
        "type": decode_texts(columns["type"], pa.array(ROW_TYPES)),
        "start_ns": build_numbers(columns["start_ns"], INT64),
        "end_ns": build_numbers(columns["end_ns"], INT64),
    }
    return pa.table([filled[field.name] for field in JOB_OPERATIONS], schema=JOB_OPERATIONS)
