"""What kinds of activity run alone, and which run at the same time."""

from itertools import combinations
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_texts,
    number_or_null,
    read_booleans,
    read_numbers,
)
from htk.base.columns.types import Ints
from htk.base.core.analysis import Later, analysis
from htk.base.core.chart import Bar
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.window_times import kind_times
from htk.quantities.measures import hta_conventions
from htk.quantities.measures.breakdown import Compat, Per, build_percent, chosen_times, sum_windows

_KINDS = ("compute", "comm", "memory")
_WHO = ("rank", "device", "cycle", "step", "complete")
_CLASSES = (*(c for n in (1, 2, 3) for c in combinations(_KINDS, n)), ("other",))

RETURNS = table(
    rank=(INT32, "Global rank; null for all ranks together."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    kinds=(
        TEXT,
        "Kinds that run at once: compute, comm, memory, joined by +; or other alone.",
    ),
    total_ns=(INT64, "Just these kinds run."),
    busy_pct=(FLOAT64, "Share of the time in which anything runs."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", "total_ns", "kinds"),
    needs=("rank_windows",),
)
def kernel_kinds(
    rank_window_times: Later,
    step_window_times: Later,
    kernels: Later,
    kernel_links: Later,
    syncs: Later,
    launches: Later,
    annotations: Later,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
    compat: Annotated[Compat | None, "Count as HTA does, to compare with it."] = None,
) -> pa.Table:
    """Which kinds of activity run alone, and which at the same time?

    Each instant belongs to one class only. The first rows are all ranks together.
    """
    if compat == "hta":
        tables = (kernels, kernel_links, syncs, launches, annotations)
        activities, windows = hta_conventions.class_gpu_time(per, *(table() for table in tables))
        times = kind_times(activities, windows)
    else:
        windows, times = chosen_times(per, rank_window_times, step_window_times)
    exact = {"+".join(kinds): times.exactly(*kinds) for kinds in _CLASSES}
    if compat == "hta":  # synchronisations on a stream, of which HTA has no class
        exact["other"] = np.zeros_like(times.total)
    who, sums = sum_windows(per, windows, exact)
    matrix = np.stack(list(sums.values()), axis=1).reshape(-1, len(_CLASSES))
    return pa.concat_tables([_all_ranks(per, who, matrix), _build_class_rows(who, matrix)])


def _all_ranks(per: Per, who: dict[str, pa.Array], times: Ints) -> pa.Table:
    """Return the sums over ranks: of everything, or of each step."""
    keys = np.stack([read_numbers(who[name], -1) for name in ("cycle", "step")], axis=1)
    unique, step_of_row = np.unique(keys, axis=0, return_inverse=True)
    cycles = unique[:, 0]
    steps = unique[:, 1]
    step_of_row = step_of_row.ravel()
    total = np.zeros((len(steps), len(_CLASSES)), np.int64)
    np.add.at(total, step_of_row, times)
    complete = np.ones(len(steps), bool)
    np.logical_and.at(complete, step_of_row, read_booleans(who["complete"]))
    nobody = pa.nulls(len(steps), INT32)
    together = {
        "rank": nobody,
        "device": nobody,
        "cycle": build_numbers(cycles, INT32, steps >= 0),
        "step": number_or_null(steps, INT32),
        "complete": build_booleans(complete),
    }
    return _build_class_rows(together, total)


def _build_class_rows(who: dict[str, pa.Array], times: Ints) -> pa.Table:
    """A row for each class that occurs; who lists the windows that the rows of times are for."""
    row, kind = np.nonzero(times)
    busy = times.sum(axis=1)
    windows = pa.array(row)
    columns = [who[name].take(windows) for name in _WHO]
    columns += [
        build_texts(["+".join(_CLASSES[k]) for k in kind.tolist()]),
        build_numbers(times[row, kind], INT64),
        build_percent(times[row, kind], busy[row]),
    ]
    return pa.table(columns, schema=RETURNS)
