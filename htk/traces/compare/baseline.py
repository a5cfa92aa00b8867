"""The cost of a recording's steps, small enough to commit: the base of a later comparison.

For each named thing (part of the time, phase, kernel, operator, module) its time in every step as
the mean over ranks and as the least of them, and on every rank as the mean over steps: enough to
tell what differs between two recordings from what differs within one. A file keeps long lists as
means of neighbours.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields, NamedTables
from htk.traces.compare.items import EACH, READERS, By, Items, Side

Kinds = Mapping[str, Mapping[str, "Series"]]

SCHEMA = "htk.compare.baseline/2"
MOST_STEPS, MOST_RANKS = 64, 32  # numbers kept of each thing
MOST_NAMES = 400  # of a kind, in a file
LEAST_STEPS = 3  # to tell how steps differ


@dataclass(frozen=True)
class Series:
    """Times of one thing, ns."""

    often: float  # in a step, mean over ranks
    by_step: Floats  # mean over ranks
    by_rank: Floats  # mean over steps
    least: Floats  # by step, over the ranks that have it

    def __add__(self, other: "Series") -> "Series":
        return Series(
            self.often + other.often,
            self.by_step + other.by_step,
            self.by_rank + other.by_rank,
            self.least + other.least,
        )

    @property
    def mean(self) -> float:
        return float(self.by_step.mean())


@dataclass(frozen=True)
class RecordedBaseline:
    """A recording, known by what its steps cost."""

    steps: int  # complete ones; 0: nothing was told by steps
    ranks: tuple[int, ...]
    kinds: Kinds
    facts: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()  # of the steps, as they were recorded
    outlying: tuple[tuple[int, float, float], ...] = ()  # steps left out, see `Side.outlying`
    runs: int = 0  # of which each "step" is the mean step; 0: steps are those of one run

    @property
    def on_host(self) -> bool:
        """Whether steps and collectives are timed on the host, since no GPU work was recorded."""
        return self.facts.get("timed on") == "host"

    def nothing(self) -> Series:
        """Return a thing that never ran here."""
        alike = next((s for things in self.kinds.values() for s in things.values()), None)
        steps = np.zeros(self.steps if alike is None else len(alike.by_step))
        ranks = np.zeros(len(self.ranks) if alike is None else len(alike.by_rank))
        return Series(0.0, steps, ranks, steps)


def build_cost_baseline(tables: NamedTables, kinds: tuple[By, ...] = EACH) -> RecordedBaseline:
    """Return what the complete steps of a recording cost."""
    side = Side(tables)
    samples = side.samples
    ranks, rank = np.unique(samples[:, 0], return_inverse=True)
    steps = Groups.by_keys(samples[:, 1:])
    series: dict[str, dict[str, Series]] = {}
    if len(samples):
        series = {kind: _build_series(READERS[kind](side), rank, steps.group_ids) for kind in kinds}
    numbers = tuple(steps.keys[:, 1].tolist())
    facts = _read_facts(tables)
    outlying = tuple(side.outlying)
    return RecordedBaseline(len(steps), tuple(ranks.tolist()), series, facts, numbers, outlying)


def _build_series(items: Items, rank: Ints, step: Ints) -> dict[str, Series]:
    """Return the times of each name, by step and by rank."""
    counted = (items.sample >= 0) & (items.code >= 0)
    if not counted.any():
        return {}
    sample = items.sample[counted]
    code = items.code[counted]
    time = items.time[counted].astype(np.float64)
    many = len(items.names)

    def compute_means(group: Ints) -> Floats:
        width = int(group.max()) + 1
        sums = np.bincount(code * width + group[sample], time, many * width)
        return np.asarray(sums.reshape(many, width) / np.bincount(group, minlength=width))

    often = np.bincount(code, minlength=many) / len(rank)
    by_step = compute_means(step)
    by_rank = compute_means(rank)
    least = _find_least(code, sample, time, step, by_step.shape)
    order = order_by(-by_step.mean(axis=1)).tolist()
    return {
        items.names[k]: Series(float(often[k]), by_step[k], by_rank[k], least[k])
        for k in order
        if often[k]
    }


def _find_least(
    code: Ints, sample: Ints, time: Floats, step: Ints, shape: tuple[int, ...]
) -> Floats:
    """Return each name's least time over the ranks that have it, in each step."""
    sums = Groups.by_keys([code, sample])
    total = np.bincount(sums.group_ids, time)
    least = np.full(shape, np.inf)
    np.minimum.at(least, (sums.keys[:, 0], step[sums.keys[:, 1]]), total)
    return np.where(np.isfinite(least), least, 0.0)


def fold_values(values: Floats, most: int) -> Floats:
    """Return the same numbers, or means of neighbours where there are too many."""
    if len(values) <= most:
        return values
    return np.array([piece.mean() for piece in np.array_split(values, most)])


def _read_facts(tables: NamedTables) -> dict[str, str]:
    """Return what it was recorded on."""
    facts = {}
    for name, column in (("device", "device_name"), ("hosts", "host")):
        values = sorted({value for value in tables["ranks"][column].to_pylist() if value})
        if values:
            facts[name] = ", ".join(values)
    return facts if tables["step_windows"].num_rows else facts | {"timed on": "host"}


def to_json(recorded: RecordedBaseline) -> str:
    """Return one line for each thing, so that a change of the file can be read."""
    head = {
        "schema": SCHEMA,
        "facts": dict(recorded.facts),
        "steps": recorded.steps,
        "ranks": list(recorded.ranks),
    }
    kinds = []
    for kind, things in recorded.kinds.items():
        lines = [
            f"      {json.dumps(name, ensure_ascii=False)}: {_spell_numbers(series)}"
            for name, series in list(things.items())[:MOST_NAMES]
        ]
        kinds.append(f"    {json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n    }")
    top = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items())
    return "{\n" + top + '  "kinds": {\n' + ",\n".join(kinds) + "\n  }\n}\n"


def _spell_numbers(series: Series) -> str:
    """Return how often, then whole ns by step, by rank, and least by step."""
    kept = (
        fold_values(series.by_step, MOST_STEPS),
        fold_values(series.by_rank, MOST_RANKS),
        fold_values(series.least, MOST_STEPS),
    )
    lists = [np.rint(values).astype(np.int64).tolist() for values in kept]
    return json.dumps([round(series.often, 3), *lists], separators=(",", ":"))


class _File(msgspec.Struct):
    """A baseline as it is written."""

    schema: str
    facts: dict[str, str]
    steps: int
    ranks: list[int]
    kinds: dict[str, dict[str, tuple[float, list[int], list[int], list[int]]]]


def is_baseline(path: str) -> bool:
    """Return whether a path is a baseline's file, not a recording."""
    try:
        with Path(path).open("rb") as file:
            return b'"htk.compare.baseline/' in file.read(200)
    except OSError:
        return False


def from_json(data: bytes, name: str) -> RecordedBaseline:
    """Return a baseline read back."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise MalformedTrace(f"{name} is a damaged baseline: {error}") from None
    if file.schema != SCHEMA:
        raise MalformedTrace(f"{name} is a {file.schema}; this htk reads {SCHEMA}: make a new one")
    widths = [min(file.steps, MOST_STEPS), min(len(file.ranks), MOST_RANKS)]
    kinds: dict[str, dict[str, Series]] = {}
    for kind, things in file.kinds.items():
        kinds[kind] = {}
        for thing, (often, *lists) in things.items():
            if [len(values) for values in lists] != [*widths, widths[0]]:
                raise MalformedTrace(f"{name} is a damaged baseline: numbers missing of {thing!r}")
            kinds[kind][thing] = Series(often, *(np.array(v, float) for v in lists))
    return RecordedBaseline(file.steps, tuple(file.ranks), kinds, file.facts)


def read_baseline(path: str) -> RecordedBaseline:
    return from_json(Path(path).read_bytes(), path)


def facts_of(recorded: RecordedBaseline, side: str) -> Fields:
    """Return what an answer says of one side."""
    counted = (
        {f"{side}_runs": recorded.runs} if recorded.runs else {f"{side}_steps": recorded.steps}
    )
    return counted | {f"{side}_ranks": len(recorded.ranks)}
