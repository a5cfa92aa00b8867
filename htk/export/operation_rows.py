"""Operation-level rows of a data-parallel job, cut from its profiles.

A forward or backward is what the GPU computes from its first to its last kernel, in the order of
launches; each all-reduce of the gradients is a row, so is the optimizer. Times are on one clock.
Jobs with pipelines, sharded parameters or tensor parallelism need rows that they log themselves:
their kernels do not tell which micro-batch they carry.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.columns.arrow import matching, number, numbers, text
from htk.columns.types import Ints, Mask
from htk.core.humanize import format_int_ranges
from htk.derived.clocks import corrections
from htk.errors import MissingTable
from htk.measures.passes import phase_codes
from htk.names.phases import BACKWARD, FORWARD, OPTIMIZER
from htk.schema import JOB_OPERATIONS
from htk.schema.operation_types import CODES, NAMES
from htk.trace.trace import Trace

_TYPE = {
    FORWARD: CODES["forward_compute"],
    BACKWARD: CODES["backward_compute"],
    OPTIMIZER: CODES["optimizer"],
}
_REDUCTION = CODES["grads_all_reduce"]
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
    """Return a row for each forward, backward, reduction and optimizer of each rank's steps."""
    kernels, links = trace.need("kernels"), trace.tables["kernel_links"]
    _refuse_other_parallelism(trace)
    _refuse_repeated_steps(trace)
    rank, step = numbers(kernels["rank"], -1), numbers(links["step"], -1)
    phase = phase_codes(trace.tables["kernel_passes"])
    inside = (rank >= 0) & (step >= 0)
    compute = matching(kernels["kind"], "compute".__eq__) & np.isin(phase, list(_TYPE)) & inside
    reduction = matching(kernels["kind"], "comm".__eq__) & inside
    if not (compute & (phase == BACKWARD)).any():
        raise MissingTable(
            "no step has forward and backward kernels; record CPU and GPU activities and call "
            "profiler.step() after each iteration"
        )
    start, end = numbers(kernels["start_ns"]), numbers(kernels["end_ns"])
    shift = corrections(trace.tables["rank_clocks"], rank, start)
    start, end = start + shift, end + shift
    runs = _runs(rank, step, phase, numbers(links["launch_start_ns"], _NEVER), compute)
    single = np.flatnonzero(reduction)
    columns = {
        "rank": np.append(rank[runs.first], rank[single]),
        "step": np.append(step[runs.first], step[single]),
        "type": np.append(runs.type, np.full(len(single), _REDUCTION)),
        "micro_batch": np.append(runs.batch, np.full(len(single), -1)),
        "start_ns": np.append(runs.over(start, np.minimum), start[single]),
        "end_ns": np.append(runs.over(end, np.maximum), end[single]),
    }
    return _table(columns)


def _refuse_other_parallelism(trace: Trace) -> None:
    """Of groups smaller than the job, and of what is no all-reduce, rows cannot be told."""
    rows = trace.tables["collectives"]
    ranks = len(trace.ranks)
    smaller = (numbers(rows["group_size"], ranks) < ranks) & (numbers(rows["group_size"]) > 1)
    other = matching(
        rows["type"], lambda t: t in ("all_gather", "reduce_scatter", "all_to_all", "send", "recv")
    )
    if smaller.any() or other.any():
        raise MissingTable(
            "rows can be cut from profiles of plain data parallelism (all-reduces over all ranks) "
            "alone; this job has pipelines, shards or other groups: log its rows with "
            "htk.capture(operations=True)"
        )


def _refuse_repeated_steps(trace: Trace) -> None:
    """Rows of a job have no cycle: steps of equal number would be one."""
    windows = trace.tables["step_windows"]
    keys = np.column_stack([numbers(windows[c], -1) for c in ("rank", "step", "cycle")])
    distinct = np.unique(keys[keys[:, 1] >= 0], axis=0)
    if len(distinct) > len(np.unique(distinct[:, :2], axis=0)):
        raise MissingTable(
            f"ranks have steps of equal number in several cycles; choose one with --cycles: "
            f"{format_int_ranges(np.unique(distinct[:, 2]).tolist())}"
        )


class _Runs:
    """Neighbouring kernels of one rank, step and phase, in the order of their launches."""

    def __init__(self, order: Ints, starts: Ints, type_: Ints, batch: Ints) -> None:
        self._order, self._starts = order, starts
        self.first = order[starts]
        self.type, self.batch = type_, batch

    def over(self, values: Ints, reduce: np.ufunc) -> Ints:
        """Return the least or greatest value of each run."""
        return np.asarray(reduce.reduceat(values[self._order], self._starts))


def _runs(rank: Ints, step: Ints, phase: Ints, launched: Ints, chosen: Mask) -> _Runs:
    rows = np.flatnonzero(chosen)
    order = rows[np.lexsort((launched[rows], step[rows], rank[rows]))]
    keys = np.stack([rank[order], step[order], phase[order]])
    starts = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0)))
    of_rank, of_step, of_phase = keys[:, starts]
    type_ = np.array([_TYPE.get(k, -1) for k in range(int(phase.max()) + 1)])[of_phase]
    batch = np.full(len(starts), -1, np.int64)
    fresh = np.append(True, (np.diff(of_rank) != 0) | (np.diff(of_step) != 0))
    for code in (_TYPE[FORWARD], _TYPE[BACKWARD]):
        of_type = type_ == code
        before = np.cumsum(of_type) - of_type
        base = np.maximum.accumulate(np.where(fresh, before, 0))
        batch[of_type] = (before - base)[of_type]
    return _Runs(order, starts, type_, batch)


def _table(columns: dict[str, Ints]) -> pa.Table:
    length = len(columns["rank"])
    filled = {
        "rank": number(columns["rank"], pa.int32()),
        "cycle": number(np.zeros(length, np.int64), pa.int32()),
        "dp_rank": number(columns["rank"], pa.int32()),
        "stage": number(np.zeros(length, np.int64), pa.int32()),
        "chunk": number(np.zeros(length, np.int64), pa.int32()),
        "micro_batch": number(columns["micro_batch"], pa.int32(), columns["micro_batch"] >= 0),
        "step": number(columns["step"], pa.int32()),
        "index_in_type": pa.nulls(length, pa.int32()),
        "type": text(columns["type"], pa.array(NAMES)),
        "start_ns": number(columns["start_ns"], pa.int64()),
        "end_ns": number(columns["end_ns"], pa.int64()),
    }
    return pa.table([filled[field.name] for field in JOB_OPERATIONS], schema=JOB_OPERATIONS)
