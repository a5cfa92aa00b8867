"""Since which run something takes longer, or less long: change points over the runs of a history.

Runs are compared where they are of one kind: on the same GPUs, as many ranks, timed the same way,
and with the same tags that name a series. The chance that a history without a change shows one is
1 %, shared among its series and the stretches of them that are looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from htk.answers.output.result import Result
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.core.label import Label
from htk.base.schema import FLOAT64, INT32, TEXT, table
from htk.quantities.measures.change_points import LEAST_STEPS, find_best_splits
from htk.verdicts.history.archive import KeptRun

FALSE_ALARMS = 0.01  # chance that a history without any change shows one
METRICS = {
    "step_time": "step_time_ns",
    "mfu": "mfu_pct",
    "exposed_comm": "exposed_comm_ns",
    "slowdown": "slowdown",
}
LEAST_RUNS = LEAST_STEPS

RETURNS = table(
    series=(TEXT, "Runs that are compared with each other."),
    metric=(TEXT, "step_time, mfu, exposed_comm or slowdown."),
    run=(TEXT, "First run since the change."),
    recorded_at=(TEXT, "When that run was recorded."),
    earliest_run=(TEXT, "The same at the earliest, with 95 % confidence."),
    latest_run=(TEXT, "The same at the latest."),
    before=(FLOAT64, "The runs before it, their mean: in ns, % or as a factor."),
    after=(FLOAT64, "The runs since, their mean."),
    change_pct=(FLOAT64, "The change, of the mean before."),
    confidence_pct=(
        FLOAT64,
        "That it is no chance, all runs and series tried counted.",
    ),
    runs_before=(INT32, "Runs that the mean before is of."),
    runs_after=(INT32, "Runs that the mean after is of."),
)
LABEL = Label("history_changes", "Since which run does a step take longer, or less long?")


@dataclass(frozen=True)
class RunSeries:
    """Runs of one kind with a value of one metric each, by time."""

    name: str
    metric: str
    runs: Sequence[KeptRun]
    values: Floats


@dataclass(frozen=True)
class Change:
    """Between which runs a series changed, and how surely; positions count its runs."""

    series: RunSeries
    first: int  # since this run
    earliest: int
    latest: int
    before: float
    after: float
    confidence: float  # 0 to 1
    counts: tuple[int, int]

    @property
    def change_pct(self) -> float | None:
        return 100 * (self.after - self.before) / self.before if self.before else None


def series_of(runs: Sequence[KeptRun], by_tags: Sequence[str], metric: str) -> list[RunSeries]:
    """Return the runs of each kind that have a value of a metric, the longest series first."""
    column = METRICS[metric]
    groups: dict[tuple[str, ...], list[KeptRun]] = {}
    for run in runs:
        if run.row[column] is not None and np.isfinite(run.row[column]):
            groups.setdefault(_name_kind(run, by_tags), []).append(run)
    series = [
        RunSeries(
            ", ".join(part for part in kind if part),
            metric,
            members,
            np.array([float(run.row[column]) for run in members]),
        )
        for kind, members in groups.items()
    ]
    return sorted(series, key=lambda each: (-len(each.runs), each.name))


def _name_kind(run: KeptRun, by_tags: Sequence[str]) -> tuple[str, ...]:
    """Return what runs must share to be compared."""
    ranks = run.row["world_size"] or run.row["rank_count"]
    timed = {"host": "timed on the host", "operations": "logged operations"}
    return (
        *(run.tags.get(name, "") for name in by_tags),
        run.row["device_name"] or "",
        f"{ranks} ranks",
        timed.get(run.row["timed_on"] or "", ""),
    )


def find_changes(series: Sequence[RunSeries]) -> list[Change]:
    """Return the changes of all series, each series by time."""
    long = [each for each in series if len(each.runs) >= LEAST_RUNS]
    return [change for each in long for change in _find_changes(each, len(long))]


def _find_changes(series: RunSeries, tried: int) -> list[Change]:
    """Find changes in stretches of a series, the shortest first, which hold one change each.

    In the whole series one change may hide another. Each stretch is one more chance of an alarm.
    """
    runs = len(series.values)
    lengths = [runs >> k for k in range(runs.bit_length()) if runs >> k >= LEAST_RUNS]
    starts = {length: _list_starts(runs, length) for length in lengths}
    chances = tried * sum(map(len, starts.values()))
    sure: list[tuple[int, float]] = []  # the first run since a change, and its p
    for length in reversed(lengths):
        shift = find_best_splits(sliding_window_view(series.values, length)[starts[length]])
        for row in order_by(shift.p).tolist():  # the surest first
            low = int(starts[length][row])
            split = int(starts[length][row] + shift.split[row])
            p = float(shift.p[row]) * chances
            if p <= FALSE_ALARMS and not any(low < s < low + length for s, _ in sure):
                sure.append((split, p))
    return list(_place_changes(series, sorted(sure), chances))


def _list_starts(runs: int, length: int) -> Ints:
    """Return where stretches of a length begin: they overlap by half, and cover the series."""
    return np.unique([*range(0, runs - length + 1, max(length // 2, 1)), runs - length])


def _place_changes(
    series: RunSeries, sure: Sequence[tuple[int, float]], chances: int
) -> Iterator[Change]:
    """Yield each change, placed by all runs between its neighbours, whose means it has."""
    bounds = [0, *(split for split, _ in sure), len(series.values)]
    for k, (split, p) in enumerate(sure):
        low = bounds[k]
        high = bounds[k + 2]
        first = split
        earliest = split
        latest = split
        if high - low >= LEAST_RUNS:
            shift = find_best_splits(series.values[None, low:high])
            first = low + int(shift.split[0])
            earliest = low + int(shift.low[0])
            latest = low + int(shift.high[0])
            p = min(p, float(shift.p[0]) * chances)
        before = series.values[low:first]
        after = series.values[first:high]
        means = float(before.mean()), float(after.mean())
        yield Change(series, first, earliest, latest, *means, 1 - p, (len(before), len(after)))


def build_changes_result(changed: Sequence[Change], tried: Sequence[RunSeries]) -> Result:
    """Return the changes as an answer."""
    rows = [_build_change_row(change) for change in changed]
    short = sum(len(each.runs) < LEAST_RUNS for each in tried)
    facts = {"series_tried": len(tried) - short, "series_too_short": short}
    return Result(LABEL, pa.Table.from_pylist(rows, schema=RETURNS), facts)


def _build_change_row(change: Change) -> dict[str, object]:
    runs = change.series.runs
    before, after = change.counts
    return {
        "series": change.series.name,
        "metric": change.series.metric,
        "run": runs[change.first].run,
        "recorded_at": runs[change.first].when,
        "earliest_run": runs[change.earliest].run,
        "latest_run": runs[change.latest].run,
        "before": change.before,
        "after": change.after,
        "change_pct": change.change_pct,
        "confidence_pct": 100 * change.confidence,
        "runs_before": before,
        "runs_after": after,
    }
