"""Tables over all ranks whose rows of one rank need no other rank's events: made rank by rank,
wherever the work of a trace runs.

What a call has to know of other ranks is little: which group it is of, and how long it waited. So
the GPU activities of all ranks are never held together; only the rows come back.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, read_numbers
from htk.base.columns.types import NONE, Ints
from htk.base.mappings import NamedTables
from htk.base.schema import DERIVED, INT64
from htk.base.spread.mapper import Mapper, every_result
from htk.quantities.derived.exposure import collective_shares
from htk.quantities.derived.match_parts import groups_in_file
from htk.quantities.derived.own_time import own_times_of
from htk.traces.trace.file import TraceFile
from htk.traces.trace.matching import survey_files

_EVENTS = ("collectives", "kernels")

_MISSING = "GPU time of some ranks was not looked at"


def made_by_rank(
    name: str, files: Sequence[TraceFile], tables: NamedTables, mapper: Mapper
) -> pa.Table | None:
    """Return a table of `registry.BY_RANK` as if it were made of the tables of all files. None: a
    file's events are not those of one rank."""
    ranks = _files_by_rank(files)
    if ranks is None:
        return None
    counts = [file.table("collectives").num_rows for file in files]
    tasks: Sequence[_OfRank]
    if name == "own_times":
        groups = survey_files(mapper, files, _MISSING).groups()
        tasks = [_OwnTimes(_select_files(files, own), [groups[k] for k in own]) for own in ranks]
    else:
        matches = tables["aligned_matches"]
        cuts = np.cumsum(counts)[:-1]
        wait = np.split(read_numbers(matches["wait_ns"], NONE), cuts)
        transfer = np.split(read_numbers(matches["transfer_ns"], NONE), cuts)
        tasks = [
            _Shares(
                _select_files(files, own),
                np.concatenate([wait[k] for k in own]),
                np.concatenate([transfer[k] for k in own]),
            )
            for own in ranks
        ]
    of_file: dict[int, pa.Table] = {}
    for own, rows in zip(ranks, every_result(mapper, _make_rows, tasks, _MISSING), strict=True):
        first = np.cumsum([0, *(counts[k] for k in own)]).tolist()
        of_file |= {k: rows.slice(row, counts[k]) for k, row in zip(own, first, strict=False)}
    held = [of_file[k] for k, count in enumerate(counts) if count]
    return pa.concat_tables([DERIVED[name].empty_table(), *held]).combine_chunks()


def _files_by_rank(files: Sequence[TraceFile]) -> list[list[int]] | None:
    """Return the numbers of each rank's files with events, so that what runs on its GPUs in one
    file is held against the calls of another."""
    of_rank: dict[int, list[int]] = defaultdict(list)
    for k, file in enumerate(files):
        own = [table for name in _EVENTS if (table := file.entry.tables.get(name)) is not None]
        if not any(table.num_rows for table in own):
            continue
        if file.rank is None or any("rank" in table.column_names for table in own):
            return None
        of_rank[file.rank].append(k)
    return list(of_rank.values())


class _OfRank(Protocol):
    """What is to be made of a rank's files."""

    @property
    def files(self) -> tuple[TraceFile, ...]: ...

    def make(self, collectives: pa.Table, activities: pa.Table) -> pa.Table: ...


@dataclass(frozen=True)
class _OwnTimes:
    files: tuple[TraceFile, ...]
    group_of: Sequence[Ints]  # the number of each group that a file's survey lists

    def make(self, collectives: pa.Table, activities: pa.Table) -> pa.Table:
        groups = [
            number_of[groups_in_file(file.table("collectives")).group_ids]
            for file, number_of in zip(self.files, self.group_of, strict=True)
        ]
        return own_times_of(collectives, activities, np.concatenate(groups))


@dataclass(frozen=True)
class _Shares:
    files: tuple[TraceFile, ...]
    wait_ns: Ints
    transfer_ns: Ints

    def make(self, collectives: pa.Table, activities: pa.Table) -> pa.Table:
        times = {"wait_ns": self.wait_ns, "transfer_ns": self.transfer_ns}
        matches = {name: build_numbers(ns, INT64, ns != NONE) for name, ns in times.items()}
        return collective_shares(collectives, pa.table(matches), activities)


def _make_rows(task: _OfRank) -> pa.Table:
    """Make the rows of a rank, in the order of its files."""
    collectives = pa.concat_tables(
        [file.table("collectives") for file in task.files]
    ).unify_dictionaries()
    activities = pa.concat_tables(
        [file.table("activities") for file in task.files]
    ).unify_dictionaries()
    rows = task.make(collectives, activities)
    for file in task.files:
        file.entry.release()
    return rows


def _select_files(files: Sequence[TraceFile], own: Sequence[int]) -> tuple[TraceFile, ...]:
    return tuple(files[k] for k in own)
