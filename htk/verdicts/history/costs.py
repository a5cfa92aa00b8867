"""What the steps of a run cost, as a table and back; of several runs, as one base of a gate."""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.columns.types import Floats
from htk.base.schema import FLOAT64, INT64
from htk.traces.compare.baseline import (
    MOST_NAMES,
    MOST_RANKS,
    MOST_STEPS,
    Kinds,
    RecordedBaseline,
    Series,
    fold_values,
)
from htk.verdicts.history.tables import COSTS

LEAST_RUNS = 3  # to tell how runs differ
_OF = b"htk.history.steps"


def costs_table(costs: RecordedBaseline) -> pa.Table:
    """Return a row for each thing; long lists are kept as means of neighbours."""
    rows = [
        (kind, name, series)
        for kind, things in costs.kinds.items()
        for name, series in list(things.items())[:MOST_NAMES]
    ]
    series = [each for _, _, each in rows]
    lists = (
        [fold_values(s.by_step, MOST_STEPS) for s in series],
        [fold_values(s.by_rank, MOST_RANKS) for s in series],
        [fold_values(s.least, MOST_STEPS) for s in series],
    )
    columns = [
        build_texts([kind for kind, _, _ in rows]),
        build_texts([name for _, name, _ in rows]),
        pa.array([s.often for s in series], FLOAT64),
        *(pa.array([np.rint(v).astype(np.int64) for v in values], _LIST) for values in lists),
    ]
    head = {"steps": costs.steps, "ranks": list(costs.ranks), "facts": dict(costs.facts)}
    metadata = {**(COSTS.metadata or {}), _OF: json.dumps(head).encode()}
    return pa.table(columns, schema=COSTS.with_metadata(metadata))


_LIST = pa.list_(INT64)


def costs_of(table: pa.Table) -> RecordedBaseline:
    """Return what a table of costs says; ValueError if it contradicts itself."""
    head = json.loads((table.schema.metadata or {})[_OF])
    steps = int(head["steps"])
    ranks = tuple(map(int, head["ranks"]))
    widths = {"by_step_ns": min(steps, MOST_STEPS), "by_rank_ns": min(len(ranks), MOST_RANKS)}
    widths["least_ns"] = widths["by_step_ns"]
    kinds: dict[str, dict[str, Series]] = {}
    for row in table.to_pylist():  # a few hundred things
        for name, width in widths.items():
            if len(row[name]) != width:
                raise ValueError(f"{row['name']!r} has {len(row[name])} {name}, expected {width}")
        lists = (np.array(row[name], float) for name in widths)
        kinds.setdefault(row["by"], {})[row["name"]] = Series(row["count_per_step"], *lists)
    return RecordedBaseline(steps, ranks, kinds, {str(k): str(v) for k, v in head["facts"].items()})


def over_runs(runs: Sequence[RecordedBaseline]) -> RecordedBaseline:
    """Return several runs as one base, of which each "step" is the mean step of a run.

    Runs differ by more than their steps show, so that a change is held against how they differ.
    """
    first = runs[0]
    ranks = first.ranks if all(run.ranks == first.ranks for run in runs) else ()
    kinds: Kinds = {
        kind: {
            name: _over_runs([run.kinds.get(kind, {}).get(name) for run in runs], bool(ranks))
            for name in dict.fromkeys(n for run in runs for n in run.kinds.get(kind, {}))
        }
        for kind in dict.fromkeys(kind for run in runs for kind in run.kinds)
    }
    facts = {"device": ", ".join(sorted({run.facts.get("device", "") for run in runs} - {""}))}
    if any(run.on_host for run in runs):
        facts["timed on"] = "host"
    return RecordedBaseline(len(runs), ranks, kinds, facts, runs=len(runs))


def _over_runs(series: Sequence[Series | None], alike: bool) -> Series:
    """Return one thing of several runs; where a run has none of it, it takes no time there."""
    recorded = [each for each in series if each is not None]

    def average_series(values: Sequence[Floats]) -> Floats:
        means = [float(v.mean()) for v in values]
        return np.array([*means, *[0.0] * (len(series) - len(recorded))])

    often = sum(each.often for each in recorded) / len(series)
    by_rank = np.zeros(0)
    if alike:
        by_rank = np.sum([each.by_rank for each in recorded], axis=0) / len(series)
    by_run = average_series([each.by_step for each in recorded])
    return Series(often, by_run, by_rank, average_series([each.least for each in recorded]))
