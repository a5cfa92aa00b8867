"""An analysis's table from the tables of a trace, and which tables those are."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.analyses import find_analysis
from htk.base.core.analysis import Analysis
from htk.base.core.spread import ByKey
from htk.base.errors import MissingTable
from htk.base.mappings import Facts
from htk.base.schema import DERIVED, INT32, TABLES
from htk.quantities.derived.cut_header import RECORDED
from htk.traces.trace.joined import are_small
from htk.traces.trace.trace import Trace


@dataclass(frozen=True)
class TablesOf:
    """The tables of a trace, for whoever works on a part of an answer."""

    trace: Trace

    def __call__(self, name: str) -> pa.Table:
        return self.trace.tables[name]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel with the names of what is in the cache, never with rows."""
        return TablesOf, (self.trace.part(self.trace.selected_files),)


def table_of_answer(
    trace: Trace, chosen: Analysis[...], options: Facts, *, in_part: bool = False
) -> pa.Table:
    """Return an analysis's answer; `in_part`: of some ranks, not finished if by key."""
    for name in chosen.needs:
        trace.need(name)
    spread = chosen.spread(options)
    tables = [
        partial(_load_table, trace, read) if read in chosen.later else _load_table(trace, read)
        for read in chosen.reads
    ]
    try:
        if in_part and isinstance(spread, ByKey):
            return spread.part(*tables, **chosen.filled(options))
        recording = {"recording": trace} if chosen.takes_recording else {}
        answer = chosen(*tables, **options, **recording)
    except MissingTable as error:  # raised among tables, which do not say their format
        raise trace.with_recipe(error) from None
    for name, columns in chosen.null_without.items():
        answer = _null_where_not_recorded(
            answer, columns, _ranks_with(trace.everything, name), trace.ranks
        )
    return answer


def _null_where_not_recorded(
    answer: pa.Table, columns: tuple[str, ...], with_rows: set[int | None], ranks: list[int]
) -> pa.Table:
    """Return the answer, null instead of 0 for ranks of which a table was not recorded at all."""
    if set(ranks) <= with_rows:
        return answer
    if "rank" in answer.column_names:
        keep = pc.is_in(answer["rank"], value_set=pa.array([*with_rows], INT32))
    else:  # of all ranks together
        keep = pa.scalar(not set(ranks).isdisjoint(with_rows))
    for name in columns:
        kind = answer.schema.field(name)
        held = pc.or_kleene(keep, pc.not_equal(answer[name], 0))
        values = pc.if_else(held, answer[name], pa.scalar(None, kind.type))
        answer = answer.set_column(answer.schema.get_field_index(name), kind, values)
    return answer


def _ranks_with(trace: Trace, name: str) -> set[int | None]:
    """Return the ranks of which rows of a parsed table were recorded; large ones are not joined for
    that."""
    if are_small(name, trace.files) and not any(
        RECORDED in f.entry.parsed.facts for f in trace.files
    ):
        return {*trace.tables[name]["rank"].unique().to_pylist()}
    ranks: set[int | None] = set()
    for file in trace.files:
        own = file.own(name)
        if own is not None and own.num_rows:
            names_ranks = "rank" in own.column_names
            ranks |= {*own["rank"].unique().to_pylist()} if names_ranks else {file.rank}
        elif file.recorded(name):  # outside of what a cut left
            ranks.add(file.rank)
    return ranks


def _load_table(trace: Trace, name: str) -> pa.Table:
    """A table of the vocabulary, or what another analysis answers by default: without rows where
    what it needs was not recorded, or is not chosen."""
    if name in TABLES or name in DERIVED:
        return trace.tables[name]
    other = find_analysis(name)
    if not all(trace.tables[needed].num_rows for needed in other.needs):
        return other.returns.empty_table()
    return table_of_answer(trace, other, {})


def tables_read(chosen: Analysis[...]) -> set[str]:
    """Return the tables that an answer rests on, through the analyses that it builds on."""
    tables: set[str] = set()
    for name in chosen.reads:
        tables |= {name} if name in TABLES or name in DERIVED else tables_read(find_analysis(name))
    return tables
