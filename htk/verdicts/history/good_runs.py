"""The last good runs of a history as the base of a gate."""

from collections.abc import Mapping
from dataclasses import dataclass

from htk.base.core.humanize import pluralize_count
from htk.base.errors import TraceError, UsageError
from htk.traces.compare.baseline import RecordedBaseline
from htk.verdicts.history.archive import History, KeptRun
from htk.verdicts.history.costs import LEAST_RUNS, over_runs
from htk.verdicts.history.listing import Wanted


@dataclass(frozen=True)
class GoodRuns:
    """Good runs as one base, which they are, and what could not be read."""

    base: RecordedBaseline
    runs: list[KeptRun]
    notes: list[str]


def last_good(history: History, count: int, tags: Mapping[str, str]) -> GoodRuns:
    """Return the last runs that were marked good, with these tags, as one base.

    UsageError if fewer than LEAST_RUNS have steps: two runs do not tell how runs differ.
    """
    if count < LEAST_RUNS:
        raise UsageError(f"--last-good {count}: {LEAST_RUNS} runs at least tell how runs differ")
    good = Wanted(tags=tags, mark="good").chosen(history.runs)
    costs: list[tuple[KeptRun, RecordedBaseline]] = []
    notes = []
    for run in reversed(good):  # until there are enough
        if len(costs) == count:
            break
        try:
            recorded = history.costs(run.run)
        except TraceError as error:
            notes.append(f"left out: {error}")
            continue
        if recorded.steps:
            costs.append((run, recorded))
    if len(costs) < LEAST_RUNS:
        tagged = f" with {', '.join(f'{k}={v}' for k, v in tags.items())}" if tags else ""
        raise UsageError(
            f"{history.address}: {pluralize_count(len(costs), 'good run')}{tagged} with steps, at "
            f"least {LEAST_RUNS} were expected; htk history mark RUN --good says which are"
        )
    costs.reverse()
    return GoodRuns(
        over_runs([recorded for _, recorded in costs]),
        [run for run, _ in costs],
        [*notes, *_describe_mixed([run for run, _ in costs])],
    )


def _describe_mixed(runs: list[KeptRun]) -> list[str]:
    """Say where the runs are of several kinds: their mean is then of none."""
    notes = []
    kinds = {
        "GPUs": [run.row["device_name"] for run in runs],
        "world sizes": [run.row["world_size"] for run in runs],
        "models": [run.tags.get("model", "no name") for run in runs],
    }
    for what, named in kinds.items():
        values = sorted(set(map(str, named)))
        if len(values) > 1:
            notes.append(f"the good runs are of several {what}: {', '.join(values[:4])}")
    return notes
