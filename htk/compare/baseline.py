"""What a recording's steps cost, small enough to commit: the base of a later comparison.

For each named thing (part of the time, phase, kernel, operator, module) its time in every step as
the mean over ranks, and on every rank as the mean over steps: enough to tell what differs between
two recordings from what differs within one. Long lists are kept as means of neighbours.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers, truths, valid
from htk.columns.types import Floats, Ints
from htk.compare.runs import EACH, READERS, By, Items, Side
from htk.errors import MalformedTrace

Kinds = Mapping[str, Mapping[str, "Series"]]

SCHEMA = "htk.compare.baseline/1"
MOST_STEPS, MOST_RANKS = 64, 32  # numbers kept of each thing
MOST_NAMES = 400  # of a kind, in a file
LEAST_STEPS = 3  # to tell how steps differ


@dataclass(frozen=True)
class Series:
    """Times of one thing, ns."""

    often: float  # in a step, mean over ranks
    by_step: Floats
    by_rank: Floats

    def __add__(self, other: "Series") -> "Series":
        return Series(
            self.often + other.often,
            self.by_step + other.by_step,
            self.by_rank + other.by_rank,
        )


@dataclass(frozen=True)
class RecordedBaseline:
    """A recording as its steps tell it."""

    steps: int  # complete ones; 0: nothing was told by steps
    ranks: tuple[int, ...]
    kinds: Kinds
    facts: Mapping[str, str] = field(default_factory=dict)

    def nothing(self) -> Series:
        """A thing that never ran here."""
        width = min(self.steps, MOST_STEPS), min(len(self.ranks), MOST_RANKS)
        return Series(0.0, np.zeros(width[0]), np.zeros(width[1]))


def baseline(tables: Mapping[str, pa.Table], kinds: tuple[By, ...] = EACH) -> RecordedBaseline:
    """What the complete steps of a recording cost."""
    side = Side(tables)
    rank, step = side.samples
    ranks, steps = np.unique(rank), np.unique(step)
    series: dict[str, dict[str, Series]] = {}
    for kind in kinds:
        items = READERS[kind](side)
        if kind == "time" and not tables["step_windows"].num_rows:
            items = _host_steps(side)
        series[kind] = _series(items, np.searchsorted(ranks, rank), np.searchsorted(steps, step))
    return RecordedBaseline(
        len(steps), tuple(ranks.tolist()), series if len(steps) else {}, _who(tables)
    )


def _series(items: Items, rank: Ints, step: Ints) -> dict[str, Series]:
    """Times of each name, by step and by rank."""
    counted = (items.sample >= 0) & (items.code >= 0)
    if not counted.any():
        return {}
    sample, code = items.sample[counted], items.code[counted]
    time = items.time[counted].astype(np.float64)
    many = len(items.names)

    def means(group: Ints) -> Floats:
        width = int(group.max()) + 1
        sums = np.bincount(code * width + group[sample], time, many * width)
        return np.asarray(sums.reshape(many, width) / np.bincount(group, minlength=width))

    often = np.bincount(code, minlength=many) / len(rank)
    by_step, by_rank = _folded(means(step), MOST_STEPS), _folded(means(rank), MOST_RANKS)
    order = np.argsort(-by_step.mean(axis=1), kind="stable").tolist()
    return {
        items.names[k]: Series(float(often[k]), by_step[k], by_rank[k]) for k in order if often[k]
    }


def _folded(values: Floats, most: int) -> Floats:
    """A row's numbers, or means of neighbours where there are too many."""
    if values.shape[1] <= most:
        return values
    pieces = np.array_split(values, most, axis=1)
    return np.stack([piece.mean(axis=1) for piece in pieces], axis=1)


def _host_steps(side: Side) -> Items:
    """Without GPU work a step takes what it takes on the host."""
    notes = side.tables["annotations"]
    is_step = pa.array(valid(notes["step"]) & ~truths(notes["on_gpu"]))
    notes = notes.filter(is_step)
    sample = side.sample(numbers(notes["rank"], -1), numbers(notes["step"], -1))
    length = numbers(notes["end_ns"]) - numbers(notes["start_ns"])
    return Items(["total"], np.zeros(len(sample), np.int64), sample, np.asarray(length))


def _who(tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """On what it was recorded, to be read by people."""
    devices = sorted({d for d in tables["ranks"]["device_name"].to_pylist() if d})
    return {"device": ", ".join(devices)} if devices else {}


def to_json(recorded: RecordedBaseline) -> str:
    """One line for each thing, so that a change of the file can be read."""
    head = {
        "schema": SCHEMA,
        "facts": dict(recorded.facts),
        "steps": recorded.steps,
        "ranks": list(recorded.ranks),
    }
    kinds = []
    for kind, things in recorded.kinds.items():
        lines = [
            f"      {json.dumps(name, ensure_ascii=False)}: {_numbers(series)}"
            for name, series in list(things.items())[:MOST_NAMES]
        ]
        kinds.append(f"    {json.dumps(kind)}: {{\n" + ",\n".join(lines) + "\n    }")
    top = "".join(f"  {json.dumps(k)}: {json.dumps(v)},\n" for k, v in head.items())
    return "{\n" + top + '  "kinds": {\n' + ",\n".join(kinds) + "\n  }\n}\n"


def _numbers(series: Series) -> str:
    """How often, then whole ns by step and by rank."""
    steps, ranks = (np.rint(v).astype(np.int64).tolist() for v in (series.by_step, series.by_rank))
    return json.dumps([round(series.often, 3), steps, ranks], separators=(",", ":"))


class _File(msgspec.Struct):
    """A baseline as it is written."""

    schema: str
    facts: dict[str, str]
    steps: int
    ranks: list[int]
    kinds: dict[str, dict[str, tuple[float, list[int], list[int]]]]


def is_baseline(path: str) -> bool:
    """Whether a path is a baseline's file, not a recording."""
    try:
        with Path(path).open("rb") as file:
            return b'"htk.compare.baseline/' in file.read(200)
    except OSError:
        return False


def from_json(data: bytes, name: str) -> RecordedBaseline:
    """A baseline read back."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise MalformedTrace(f"{name} is a damaged baseline: {error}") from None
    if file.schema != SCHEMA:
        raise MalformedTrace(f"{name} is a {file.schema}; this htk reads {SCHEMA}: make it anew")
    expected = RecordedBaseline(file.steps, tuple(file.ranks), {}, file.facts)
    width = expected.nothing()
    kinds: dict[str, dict[str, Series]] = {}
    for kind, things in file.kinds.items():
        kinds[kind] = {}
        for thing, (often, steps, ranks) in things.items():
            if (len(steps), len(ranks)) != (len(width.by_step), len(width.by_rank)):
                raise MalformedTrace(f"{name} is a damaged baseline: numbers missing of {thing!r}")
            kinds[kind][thing] = Series(often, np.array(steps, float), np.array(ranks, float))
    return RecordedBaseline(file.steps, tuple(file.ranks), kinds, file.facts)


def read(path: str) -> RecordedBaseline:
    return from_json(Path(path).read_bytes(), path)


def facts_of(recorded: RecordedBaseline, side: str) -> dict[str, Any]:
    """What an answer says of one side."""
    return {f"{side}_steps": recorded.steps, f"{side}_ranks": len(recorded.ranks)}
