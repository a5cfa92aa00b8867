"""What became slower or faster in the middle of a recording, and from which step on."""

from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    mark_valid,
    read_booleans,
    read_keys,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, TEXT, table
from htk.quantities.measures.chance import correct_by_holm
from htk.quantities.measures.change_points import LEAST_STEPS, find_best_splits

FALSE_ALARMS = 0.01  # chance that a recording without any shift shows one
STEP = "(step)"
_ALONE = 0.8  # of what all ranks together became slower by: one rank has it
_LEAST_SHARE = 0.0005  # of the time of all: smaller things are left out

_PLACES = ("cycle", "step", "low", "high")

RETURNS = table(
    name=(TEXT, "Name of the GPU activities; (step): the GPU step itself."),
    rank=(INT32, "The rank it happened on; null: their mean."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "First step that is slower, or faster."),
    earliest_step=(INT32, "The same at the earliest, with 95 % confidence."),
    latest_step=(INT32, "The same at the latest."),
    before_ns=(FLOAT64, "Time in a step before."),
    after_ns=(FLOAT64, "Time in a step since."),
    change_pct=(FLOAT64, "The change, of the time before."),
    confidence_pct=(FLOAT64, "That it is no chance, all things and steps that were tried counted."),
)


class StepSeries(NamedTuple):
    """Time in each step of each name on each rank."""

    names: list[str]
    ranks: Ints
    cycles: Ints
    steps: Ints
    time: Floats  # name, rank, step


@analysis(returns=RETURNS, needs=("step_windows",))
def change_points(
    kernel_totals: pa.Table,
    step_windows: pa.Table,
    *,
    min_pct: Annotated[
        float, "Leave out what is smaller, in %: changes relative to the time before."
    ] = 1.0,
) -> pa.Table:
    """From which step on did a kernel, or the step, become slower or faster?

    Steps that every rank recorded whole are compared: the mean over ranks first, then each rank by
    itself where the mean shows nothing. The chance of a false alarm, 1 %, is shared among all.
    """
    series = step_series(kernel_totals, step_windows)
    shifted = find_shifts(series)
    change = shifted["after"] - shifted["before"]
    share = 100 * change / np.maximum(shifted["before"], 1e-9)
    kept = np.abs(share) >= min_pct
    order = np.flatnonzero(kept)[order_by(-np.abs(change[kept]))]
    facts = {"steps": len(series.steps), "tried": len(series.names)}
    return with_coverage(_build_shift_table(series, shifted, share, order), **facts)


def find_shifts(series: StepSeries) -> dict[str, NDArray[Any]]:
    """Return what shifted, by more than chance explains: the mean over ranks first, then each rank
    by itself where that shows nothing."""
    tried = len(series.names)
    shifted = _find_shifted_rows(
        series, series.time.mean(axis=1), np.full(tried, NONE), np.arange(tried)
    )
    if len(series.ranks) > 1:
        open_ = np.flatnonzero(~np.isin(np.arange(tried), shifted["name"]))
        code = np.repeat(open_, len(series.ranks))
        rank = np.tile(series.ranks, len(open_))
        alone = series.time[open_].reshape(len(code), len(series.steps))
        each = _find_shifted_rows(series, alone, rank, code)
        shifted = {k: np.append(v, each[k]) for k, v in shifted.items()}
    return shifted


def step_series(totals: pa.Table, windows: pa.Table) -> StepSeries:
    """Return the time of each name in the steps that all ranks recorded whole."""
    windows = windows.filter(
        pa.array(mark_valid(windows["step"]) & read_booleans(windows["complete"]))
    )
    rank, where = _rank_and_step(windows)
    ranks = np.unique(rank)
    distinct = Groups.by_keys(where)
    common = distinct.keys[distinct.distinct(rank) == len(ranks)] if len(rank) else where
    if len(common) < LEAST_STEPS:
        raise MissingTable(
            f"{len(common)} complete steps on every rank; a change needs {LEAST_STEPS} at least"
        )
    names, code, lengths = _number_names(totals)
    own_rank, own_where = _rank_and_step(totals)
    name = np.append(code, np.full(len(rank), len(names)))
    span = read_lengths(windows)
    step = row_of(common, np.concatenate([own_where, where]))
    used = (step != NONE) & (name >= 0)
    position = np.searchsorted(ranks, np.append(own_rank, rank))
    time = np.zeros((len(names) + 1, len(ranks), len(common)))
    cells = (name[used], np.minimum(position, len(ranks) - 1)[used], step[used])
    np.add.at(time, cells, np.append(lengths, span)[used].astype(np.float64))
    # What some steps of a rank lack is other work, not slower work.
    often = (time > 0).sum(axis=2)
    rows = np.flatnonzero(np.isin(often, (0, len(common))).all(axis=1) & often.any(axis=1))
    labels = [*names, STEP]
    return StepSeries(
        [labels[k] for k in rows.tolist()], ranks, common[:, 0], common[:, 1], time[rows]
    )


def _number_names(totals: pa.Table) -> tuple[list[str], Ints, Ints]:
    """Names that take some time, the code of each row (-1: another) and its time."""
    code, dictionary = codes_of(totals["name"])
    length = read_numbers(totals["total_ns"])
    total = np.bincount(code[code >= 0], length[code >= 0], minlength=len(dictionary))
    kept = np.flatnonzero(total > _LEAST_SHARE * total.sum())
    new = fill_none(len(dictionary) + 1)
    new[kept] = np.arange(len(kept))
    return dictionary.take(pa.array(kept)).to_pylist(), new[code], length


def _rank_and_step(table: pa.Table) -> tuple[Ints, Ints]:
    """Rank, and cycle and step, of each row."""
    columns = read_numbers(table["cycle"], 0), read_numbers(table["step"], NONE)
    where = np.column_stack([column.astype(np.int64) for column in columns])
    return read_keys(table["rank"]), where


def _find_shifted_rows(
    series: StepSeries, time: Floats, rank: Ints, name: Ints
) -> dict[str, NDArray[Any]]:
    """Return the rows of a matrix of steps that shift, with what is known of each."""
    shift = find_best_splits(time)
    falls, level = correct_by_holm(shift.p, FALSE_ALARMS)
    rows = np.flatnonzero(falls)
    adjusted = shift.p[rows] * FALSE_ALARMS / level[rows]
    before = shift.before[rows]
    after = shift.after[rows]
    rank = _find_carrier(series, name[rows], rank[rows], shift.split[rows], before, after)
    return {
        "name": name[rows],
        "rank": rank,
        "cycle": series.cycles[shift.split[rows]],
        "step": series.steps[shift.split[rows]],
        "low": series.steps[shift.low[rows]],
        "high": series.steps[shift.high[rows]],
        "before": before,
        "after": after,
        "confidence": 100 * (1 - adjusted),
    }


def _find_carrier(
    series: StepSeries, name: Ints, rank: Ints, split: Ints, before: Floats, after: Floats
) -> Ints:
    """Name the one rank that a shift of the mean comes from, and put its own times there."""
    rank = rank.copy()
    for row in np.flatnonzero(rank == NONE).tolist():  # a few shifts
        time = series.time[name[row]]
        cut = int(split[row])
        own = time[:, :cut].mean(axis=1), time[:, cut:].mean(axis=1)
        change = own[1] - own[0]
        most = int(np.argmax(np.abs(change)))
        if len(change) > 1 and abs(change[most]) > _ALONE * abs(change.sum()):
            rank[row] = series.ranks[most]
            before[row] = own[0][most]
            after[row] = own[1][most]
    return rank


def _build_shift_table(
    series: StepSeries, shifted: dict[str, NDArray[Any]], share: Floats, order: Ints
) -> pa.Table:
    names = [series.names[int(k)] for k in shifted["name"][order].tolist()]
    rank = shifted["rank"][order].astype(np.int64)
    columns = [build_texts(names), build_numbers(rank, INT32, rank != NONE)]
    columns += [build_numbers(shifted[k][order].astype(np.int64), INT32) for k in _PLACES]
    columns += [build_numbers(shifted[k][order], FLOAT64) for k in ("before", "after")]
    columns += [
        build_numbers(share[order], FLOAT64),
        build_numbers(shifted["confidence"][order], FLOAT64),
    ]
    return pa.table(columns, schema=RETURNS)
