"""Answers made of some ranks at a time, so that memory does not grow with the number of ranks.

By-rank answers are put one after the other; by-key answers are finished from their parts. What
cannot be had so, whole, is left to who asked.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from htk.analyses import find_analysis
from htk.answers.table import table_of_answer, tables_read
from htk.base.core.analysis import COVERAGE, Analysis, coverage_of
from htk.base.core.spread import AtCollectives, ByKey, ByRank
from htk.base.errors import MissingTable
from htk.base.mappings import Facts
from htk.base.spread.mapper import every_result
from htk.base.spread.memory import release_free_memory
from htk.quantities.derived.registry import base_tables
from htk.traces.trace.coverage import gpu_facts, rests_on_gpu
from htk.traces.trace.file import TraceFile
from htk.traces.trace.trace import Trace

# Bytes that an answer takes at most for each byte of its tables: columns as NumPy arrays, and what
# is sorted and grouped of them.
_WORK_PER_BYTE = 4
_BATCHES_PER_WORKER = 4  # so that none waits long for the last


@dataclass(frozen=True)
class InParts:
    """An answer put together, and the coverage of its GPU work where it speaks of that."""

    table: pa.Table
    gpu: Facts | None


@dataclass(frozen=True)
class _Job:
    """What a worker does with some ranks."""

    name: str
    options: Facts

    def __call__(self, part: Trace) -> "_Part":
        chosen = find_analysis(self.name)
        ranks = part.part(part.files)  # its tables go when it does
        counts = ranks.gpu_counts if rests_on_gpu(tables_read(chosen)) else None
        try:
            table = table_of_answer(ranks, chosen, self.options, in_part=True)
        except MissingTable:
            table = None
        ranks.tables.release()
        for file in part.files:
            file.entry.release()
        release_free_memory()
        return _Part(table, counts)


@dataclass(frozen=True)
class _Part:
    table: pa.Table | None  # None: these ranks have nothing to say
    counts: Mapping[str, int] | None


def in_parts(trace: Trace, chosen: Analysis[...], options: Facts) -> InParts | None:
    """Return the answer, made of some ranks at a time; None where it has to be made whole, or is
    small enough for that."""
    spread = chosen.spread(options)
    if not isinstance(spread, ByRank | ByKey | AtCollectives):
        return None
    batches = list(_split_into_batches(trace, chosen))
    if len(batches) < 2:
        return None
    if isinstance(spread, AtCollectives):
        from htk.answers.at_collectives import step_path_in_parts  # half of the graph's modules

        path = step_path_in_parts(trace, batches, options.get("step"))
        if path is None:
            return None
        return InParts(chosen.checked(spread.finish(path, **chosen.filled(options))), None)
    parts = _work_in_parts(trace, _Job(chosen.name, options), batches)
    counts = [part.counts for part in parts if part.counts is not None]
    gpu = gpu_facts(counts) if counts else None
    tables = [part.table for part in parts if part.table is not None]
    if not tables:
        return None
    if isinstance(spread, ByKey):
        joined = pa.concat_tables(tables).unify_dictionaries()
        return InParts(chosen.checked(spread.finish(joined, **chosen.filled(options))), gpu)
    facts = spread.merged_facts([coverage_of(table) for table in tables])
    if facts is None:
        return None
    return InParts(_join_tables(tables, facts), gpu)


def _join_tables(tables: Sequence[pa.Table], facts: Facts) -> pa.Table:
    """Return the rows one after the other, each text with one code."""
    joined = pa.concat_tables(tables).unify_dictionaries()
    return joined.replace_schema_metadata({COVERAGE: json.dumps(facts).encode()})


def _work_in_parts(trace: Trace, job: _Job, batches: Sequence[Trace]) -> list[_Part]:
    missing = f"{job.name}: part of the ranks was not answered"
    return list(every_result(trace.work.mapper, job, batches, missing))


def _split_into_batches(trace: Trace, chosen: Analysis[...]) -> Iterator[Trace]:
    """Yield the ranks in order, as many at a time as fit; nothing where ranks cannot be told apart
    by their files, or all fit."""
    names = base_tables(tables_read(chosen))
    ranks = [list(of_rank) for _, of_rank in groupby(trace.selected_files, key=lambda f: f.rank)]
    if len(ranks) < 2:
        return
    sizes = [sum(_work_bytes(file, names) for file in files) for files in ranks]
    workers = trace.work.mapper.workers
    limit = trace.work.limit_bytes // workers
    if trace.work.is_elsewhere:
        limit = min(limit, sum(sizes) // (workers * _BATCHES_PER_WORKER))
    elif sum(sizes) <= limit:
        return
    if not all(_of_one_rank(file, names) for files in ranks for file in files):
        return
    batch: list[TraceFile] = []
    filled = 0
    for files, size in zip(ranks, sizes, strict=True):
        if batch and filled + size > limit:
            yield trace.part(batch)
            batch = []
            filled = 0
        batch += files
        filled += size
    yield trace.part(batch)


def _of_one_rank(file: TraceFile, names: Collection[str]) -> bool:
    """Return whether all rows of a file are of the rank that it is of."""
    tables = file.entry.tables
    return file.rank is not None and not any(
        "rank" in tables[name].column_names for name in names if name in tables
    )


def _work_bytes(file: TraceFile, names: Collection[str]) -> int:
    """Return the memory that an answer from a file's tables takes at most."""
    return _WORK_PER_BYTE * sum(file.entry.size_bytes(name) for name in names)
