"""Collectives of all ranks matched by partition, wherever the work of a trace runs.

Each file's calls are dealt out to partitions on disk, in a folder of the cache that all workers
reach; each partition is matched by itself. No process ever holds the calls of all ranks.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Ints
from htk.base.io.temporary import temporary_folder
from htk.base.spread.mapper import Mapper, every_result
from htk.base.spread.workplace import Workplace
from htk.quantities.derived.clock_ends import CertainEnds
from htk.quantities.derived.match_parts import (
    DealtGroups,
    EndsOfPart,
    MatchedPart,
    Partition,
    Planner,
    Survey,
    ends_of_all,
    ends_of_part,
    match_part,
    numbers_in_all,
    put_together,
    split_calls,
    survey_groups,
)
from htk.traces.trace.file import TraceFile

WORK_PER_CALL = 800  # bytes that matching may take; `bench.match` measures 570
_FEWEST_CALLS = 1_000_000  # fewer are matched in less time than they are dealt out
_PARTS_PER_WORKER = 2

_MISSING = "collectives of some ranks were not matched"


def worth_partitions(files: Sequence[TraceFile], work: Workplace, *, exceeds_memory: bool) -> bool:
    """Return whether collectives of these files are matched by partition: where those of all may
    not fit, and where others do the work."""
    calls = sum(file.table("collectives").num_rows for file in files)
    too_many = exceeds_memory and calls * WORK_PER_CALL > work.limit_bytes
    return too_many or (work.is_elsewhere and calls >= _FEWEST_CALLS)


def matched_by_partition(
    files: Sequence[TraceFile], windows: pa.Table, ranks: pa.Table, work: Workplace, root: Path
) -> pa.Table:
    """Return the match of each collective of the files, as if all were in one table."""
    mapper = work.mapper
    planner = survey_files(mapper, files, _MISSING)
    counts = [file.table("collectives").num_rows for file in files]
    plan = planner.plan(_calls_at_once(sum(counts), work))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = temporary_folder(root)
    try:
        first = np.cumsum([0, *counts])
        splits = [
            _Split(folder, k, file, plan.of_file[k], int(first[k])) for k, file in enumerate(files)
        ]
        places = list(every_result(mapper, _Split.write, splits, _MISSING))
        numbered = _match_partitions(mapper, folder, plan, places, windows, ranks)
        return put_together(numbered, sum(counts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _calls_at_once(calls: int, work: Workplace) -> int:
    """Return how many calls a partition may have: all workers' together fit into the memory."""
    workers = work.mapper.workers
    fit = work.limit_bytes // (WORK_PER_CALL * workers)
    shared = calls // (workers * _PARTS_PER_WORKER) if work.is_elsewhere else fit
    return max(1, min(fit, shared))


def survey_files(mapper: Mapper, files: Sequence[TraceFile], missing: str) -> Planner:
    """Return what all files tell of their groups; see `every_result`."""
    planner = Planner()
    for of_file in every_result(mapper, _survey_file, files, missing):
        planner.add(of_file)
    return planner


def _survey_file(file: TraceFile) -> Survey:
    return survey_groups(file.table("collectives"))


@dataclass(frozen=True)
class _Split:
    """A file whose calls are to be dealt out."""

    folder: Path
    number: int
    file: TraceFile
    part_of_group: Ints
    first_row: int

    def write(self) -> dict[int, int]:
        """Write the file's calls, a batch for each partition that has any; return which is
        whose."""
        pieces = split_calls(self.file.table("collectives"), self.part_of_group, self.first_row)
        self.file.entry.release()
        if pieces:
            schema = next(iter(pieces.values())).schema
            path = str(_name_piece(self.folder, self.number))
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for piece in pieces.values():
                    writer.write_table(piece)
        return {partition: k for k, partition in enumerate(pieces)}


def _name_piece(folder: Path, number: int) -> Path:
    return folder / f"calls-{number}.arrow"


@dataclass(frozen=True)
class _Match:
    """A partition to be matched, and where its calls are."""

    folder: Path
    partition: Partition
    batches: Sequence[tuple[int, int]]  # of which file, which batch
    windows: pa.Table
    ranks: pa.Table
    wants_ends: bool
    certain: CertainEnds | None = None

    def calls(self) -> pa.Table:
        tables = []
        for number, batch in self.batches:
            with pa.memory_map(str(_name_piece(self.folder, number))) as mapped:
                tables.append(pa.Table.from_batches([pa.ipc.open_file(mapped).get_batch(batch)]))
        return pa.concat_tables(tables).unify_dictionaries()

    def run(self) -> tuple["_Kept", EndsOfPart | None]:
        """Match and keep the rows on disk; what matches are numbered by goes back."""
        calls = self.calls()
        matched = match_part(calls, self.partition, self.windows, self.ranks, self.certain)
        ends = ends_of_part(calls, matched) if self.wants_ends else None
        path = self.folder / f"matches-{self.partition.number}.arrow"
        table = matched.table.append_column("row", pa.array(matched.row))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return _Kept(path, matched.begun, matched.first_row), ends


@dataclass(frozen=True)
class _Kept:
    """The matches of a partition, on disk."""

    path: Path
    begun: Ints
    first_row: Ints

    def read(self) -> MatchedPart:
        with pa.memory_map(str(self.path)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
        return MatchedPart(
            read_numbers(table["row"]), table.drop_columns(["row"]), self.begun, self.first_row
        )


def _match_partitions(
    mapper: Mapper,
    folder: Path,
    plan: DealtGroups,
    places: Sequence[dict[int, int]],
    windows: pa.Table,
    ranks: pa.Table,
) -> Iterator[tuple[MatchedPart, Ints]]:
    """Yield each partition's matches, with their numbers in all."""
    guesses = any(partition.judges_guesses for partition in plan.partitions)
    tasks = [
        _Match(folder, partition, _list_batches(places, partition.number), windows, ranks, guesses)
        for partition in plan.partitions
    ]
    outcomes = list(every_result(mapper, _Match.run, tasks, _MISSING))
    kept = [outcome[0] for outcome in outcomes]
    if guesses:  # judged by the clocks of all
        certain = ends_of_all([ends for _, ends in outcomes if ends is not None], plan.ranks)
        for k, task in enumerate(tasks):
            if task.partition.judges_guesses:
                kept[k], _ = replace(task, wants_ends=False, certain=certain).run()
    yield from ((part.read(), own) for part, own in zip(kept, numbers_in_all(kept), strict=True))


def _list_batches(places: Sequence[dict[int, int]], partition: int) -> list[tuple[int, int]]:
    return [(k, batch_of[partition]) for k, batch_of in enumerate(places) if partition in batch_of]
