"""The critical path of a step, from graphs of some ranks each: cut where ranks meet.

In rounds over the ranks, some at a time, wherever the work of a trace runs: what all have to know
of each; the graph of each, and its ways from one collective to the next; its replay, once the small
graph of collectives has told when they begin; and the legs of the path, of those ranks alone that
it passes. No process ever holds the tables or the graph of all ranks. Graphs are kept on disk from
round to round; a machine that has not made one makes it again.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.base.io.sealed_object import KEY_BYTES, keep_object, load_kept_object
from htk.base.io.store import Store
from htk.base.io.temporary import temporary_folder, temporary_name
from htk.base.mappings import NamedTables
from htk.base.spread.mapper import every_result
from htk.base.spread.memory import release_free_memory
from htk.quantities.graph.build import READS, refuse_other_clocks, steps_at_hand
from htk.quantities.graph.critical_path import PathEdges, PathEvents, StepPath
from htk.quantities.graph.cut import Ways, begins_of_collectives, ways_of
from htk.quantities.graph.gate import Figures, TestedStep, judge_figures
from htk.quantities.graph.held_out import held_out
from htk.quantities.graph.part import (
    NOWHERE,
    GraphPart,
    HeardOfStep,
    PartReplay,
    StepOfAll,
    hear_ranks,
    list_path_legs,
    part_of,
    replay_part,
)
from htk.quantities.graph.path_lead import BEFORE_THE_FIRST_CALL, name_lead
from htk.quantities.graph.pooled import Told
from htk.traces.trace.trace import Trace

_WINDOWS = ("step_windows", "rank_windows", "rank_clocks")  # of all ranks: some rows of each

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def step_path_in_parts(trace: Trace, parts: Sequence[Trace], step: int | None) -> StepPath | None:
    """Return the critical path of a step; None: it has to be found, or refused, of all ranks at
    once."""
    if not _can_be_cut(trace, parts) or not trace.tables["rank_windows"].num_rows:
        return None
    windows = {name: trace.tables[name] for name in _WINDOWS}
    folder = _new_folder(Store().root)
    try:
        return _Rounds(trace, _with_matches(trace, parts, windows), folder).path(step)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(root: Path) -> Path:
    """Return where graphs can be kept; where that cannot be, the name of no folder."""
    with suppress(OSError):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return temporary_folder(root)
    return root / temporary_name()


def _can_be_cut(trace: Trace, parts: Sequence[Trace]) -> bool:
    """Return whether rows of several ranks are those of each, one after the other."""
    ranks = [file.rank for part in parts for file in part.files if file.rank is not None]
    return ranks == sorted(ranks) and not trace.selection.narrows


@dataclass(frozen=True)
class _Ranks:
    """Some ranks, and what they take of all."""

    trace: Trace
    match: pa.Array  # of each of their collectives
    windows: NamedTables

    @contextmanager
    def tables(self) -> Iterator[dict[str, pa.Table]]:
        """Give the tables of these ranks, which nothing keeps afterwards."""
        own = self.trace.part(self.trace.files)
        held = {**self.windows, "collective_matches": pa.table({"match": self.match})}
        try:
            yield {name: own.tables[name] for name in READS if name not in held} | held
        finally:
            own.tables.release()
            for file in self.trace.files:
                file.entry.release()
            release_free_memory()


def _with_matches(trace: Trace, parts: Sequence[Trace], windows: NamedTables) -> list[_Ranks]:
    match = trace.tables["collective_matches"]["match"]
    calls = [sum(file.table("collectives").num_rows for file in part.files) for part in parts]
    bounds = pairwise([0, *accumulate(calls)])
    return [
        _Ranks(part, match.slice(low, high - low).combine_chunks(), windows)
        for part, (low, high) in zip(parts, bounds, strict=True)
    ]


@dataclass(frozen=True)
class _Job:
    """How a worker gets at the graph of some ranks."""

    number: int
    ranks: _Ranks
    of_all: StepOfAll
    pooled: list[Told]
    folder: Path
    key: bytes  # of what is kept there

    def part(self) -> GraphPart:
        """Return it as this machine has kept it, else made again."""
        part: GraphPart | None = load_kept_object(self._file, self.key)
        return self.made() if part is None else part

    def made(self) -> GraphPart:
        with self.ranks.tables() as tables:
            part = part_of(tables, self.of_all, self.pooled)
        with suppress(OSError):  # no such folder, or a full disk: it is made again
            keep_object(part, self._file, self.key)
        return part

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.number}.part"


@dataclass(frozen=True)
class _Hear:
    """Asks some ranks what the others have to know of them."""

    of_all: StepOfAll

    def __call__(self, ranks: _Ranks) -> list[HeardOfStep]:
        with ranks.tables() as tables:
            return hear_ranks(tables, self.of_all)


@dataclass(frozen=True)
class _Lead:
    """Asks the ranks where a path begins what lies before it in its step."""

    rank: int
    start: int
    end: int

    def __call__(self, ranks: _Ranks) -> str:
        with ranks.tables() as tables:
            return name_lead(tables, self.rank, self.start, self.end)


def _cut_ways(job: _Job) -> list[Ways]:
    return ways_of(job.made())


@dataclass(frozen=True)
class _Begun:
    """Some ranks, when each of their collectives begins, and legs of the path that are wanted."""

    job: _Job
    began: list[Ints]  # with each of its weights
    legs: list[int | None]


def _replay_begun(begun: _Begun) -> PartReplay:
    return replay_part(begun.job.part(), begun.began)


def _list_legs(begun: _Begun) -> list[tuple[PathEdges, PathEvents]]:
    return list_path_legs(begun.job.part(), begun.began[0], begun.legs)


@dataclass(frozen=True)
class _Rounds:
    """The rounds over all ranks."""

    trace: Trace
    parts: list[_Ranks]
    folder: Path

    def path(self, step: int | None) -> StepPath | None:
        of_all = self._find_step(step)
        heard = list(self._map_all(_Hear(of_all), self.parts))
        by_step = list(zip(*heard, strict=True))
        if not all(_can_be_replayed(of_step) for of_step in by_step):
            return None
        pooled = [Told.by([part.pooled for part in of_step]) for of_step in by_step]
        key = os.urandom(KEY_BYTES)
        jobs = [
            _Job(k, ranks, of_all, _build_own_pool(pooled, own), self.folder, key)
            for k, (ranks, own) in enumerate(zip(self.parts, heard, strict=True))
        ]
        ways = list(self._map_all(_cut_ways, jobs))
        begun = _list_begun(jobs, ways, pooled[0])
        outcomes = list(self._map_all(_replay_begun, begun))
        edges, events = self._join_legs(begun, outcomes)
        window = of_all.steps.window(of_all.step, of_all.origin)
        tested = TestedStep(of_all.steps, of_all.step, of_all.cycle, window)
        figures = Figures.of_all([each.figures for each in outcomes])
        result = judge_figures(figures, edges, tested)
        if not result.replays:  # delays that nothing explains are found of all ranks at once
            return None
        facts = tested.facts(figures, result)
        lead = self._name_lead(edges, events, window[0], of_all.origin)
        return StepPath(edges, events, facts, window[0], of_all.origin, lead)

    def _name_lead(self, edges: PathEdges, events: PathEvents, low: int, origin: int) -> str:
        """Return what lies before the path in its step, as the ranks tell where it begins."""
        begin = int(edges.begin[0])
        if begin <= low:  # nothing does: no tables need be opened
            return BEFORE_THE_FIRST_CALL
        rank = int(events.rank[0])
        where = [each for each in self.parts if rank in each.trace.ranks]
        asked = _Lead(rank, low + origin, begin + origin)
        return next(self._map_all(asked, where))

    def _find_step(self, step: int | None) -> StepOfAll:
        windows = self.parts[0].windows
        steps = steps_at_hand(windows)
        chosen = steps.chosen(step)
        origin = int(read_numbers(windows["rank_windows"]["start_ns"]).min())
        return StepOfAll(steps, chosen, held_out(steps, chosen), origin)

    def _map_all(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[Answer]:
        mapper = self.trace.work.mapper
        return every_result(mapper, function, items, "part of the ranks was not answered")

    def _join_legs(
        self, begun: Sequence[_Begun], outcomes: Sequence[PartReplay]
    ) -> tuple[PathEdges, PathEvents]:
        """Return the path, put together of its legs."""
        way = _way_back(outcomes)
        asked = [
            replace(begun[k], legs=[match for part, match in way if part == k])
            for k in sorted({part for part, _ in way})
        ]
        answers = zip(asked, self._map_all(_list_legs, asked), strict=True)
        left = {each.job.number: iter(of_part) for each, of_part in answers}
        edges, events = zip(*[next(left[part]) for part, _ in way][::-1], strict=True)
        return _concatenate_parts(PathEdges, edges), _concatenate_parts(PathEvents, events)


def _can_be_replayed(heard: Sequence[HeardOfStep]) -> bool:
    """Return whether there is a step to replay; refuse ranks that cannot be put together."""
    ranks = np.concatenate([part.ranks for part in heard])
    if not len(ranks) or not sum(part.calls for part in heard):
        return False
    refuse_other_clocks(ranks, np.concatenate([part.begins for part in heard]))
    return True


def _build_own_pool(pooled: Sequence[Told], heard: Sequence[HeardOfStep]) -> list[Told]:
    return [of_all.for_part(own.pooled) for of_all, own in zip(pooled, heard, strict=True)]


def _list_begun(jobs: Sequence[_Job], ways: Sequence[list[Ways]], meetings: Told) -> list[_Begun]:
    """Return when the collectives of each part begin, with each of its weights."""
    began = [begins_of_collectives(of_all, meetings) for of_all in zip(*ways, strict=True)]
    rows = [np.searchsorted(meetings.match, own[0].match) for own in ways]
    return [
        _Begun(job, [times[own] for times in began], [])
        for job, own in zip(jobs, rows, strict=True)
    ]


def _way_back(outcomes: Sequence[PartReplay]) -> list[tuple[int, int | None]]:
    """Return the parts that a path passes, from its last end back to its beginning, and the
    collective that it leads to in each; None: to that end."""
    led_by: dict[int, tuple[int, int]] = {}  # of several parts that arrive last the first
    for k in reversed(range(len(outcomes))):
        pairs = zip(outcomes[k].led_by.tolist(), outcomes[k].came_from.tolist(), strict=True)
        led_by |= {match: (k, before) for match, before in pairs}
    part = int(np.argmax([each.figures.end for each in outcomes]))
    way: list[tuple[int, int | None]] = [(part, None)]
    match = outcomes[part].end_came_from
    while match != NOWHERE:  # as many collectives as are on the path
        part, before = led_by[match]
        way.append((part, match))
        match = before
    return way


def _concatenate_parts(kind: type[Answer], parts: Sequence[Any]) -> Answer:
    """Return rows of several, one after the other."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
