"""Answer one question about a trace, with the coverage the answer rests on."""

import difflib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.analyses import ANALYSES, find
from htk.core.analysis import Analysis, coverage_of
from htk.core.recording_hints import hint
from htk.errors import MissingTable, UsageError
from htk.output.result import Result
from htk.schema import DERIVED, TABLES
from htk.trace.coverage import coverage
from htk.trace.trace import Trace


def catalog() -> dict[str, str]:
    """Return the question that each analysis answers, by the name of the analysis.

    >>> import htk
    >>> htk.catalog()["kernel_top"]
    'Which kernels cost most GPU time?'
    """
    return {name: entry.question for name, entry in ANALYSES.items()}


def ask(trace: Trace, name: str, **options: Any) -> Result:
    """Return the answer of the analysis called `name`, e.g. `ask(trace, "kernel_top", n=20)`."""
    chosen = find(name)
    for unknown in sorted(set(options) - set(chosen.options)):
        near = difflib.get_close_matches(unknown, chosen.options, 1)
        rest = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(chosen.options)}"
        raise UsageError(f"{chosen.name} has no option {unknown!r}; {rest}")
    trace.check_selection()
    if options.get("per") == "step" and not trace.has_steps:
        raise MissingTable(f"the trace has no steps; it needs {hint('step_windows')}")
    table = _table_of_answer(trace, chosen, options)
    facts = coverage(trace, _reads(chosen)) | dict(coverage_of(table))
    return Result(chosen.label, table, facts)


def _table_of_answer(trace: Trace, chosen: Analysis[...], options: dict[str, Any]) -> pa.Table:
    for name in chosen.needs:
        trace.need(name)
    answer = chosen(*(_table(trace, read) for read in chosen.reads), **options)
    for name, columns in chosen.null_without.items():
        answer = _null_where_not_recorded(
            answer, columns, trace.everything.tables[name], trace.ranks
        )
    return answer


def _null_where_not_recorded(
    answer: pa.Table, columns: tuple[str, ...], recorded: pa.Table, ranks: list[int]
) -> pa.Table:
    """The answer, null instead of 0 for ranks of which a table was not recorded at all."""
    with_rows = pc.unique(recorded["rank"]).to_pylist()
    if set(ranks) <= set(with_rows):
        return answer
    if "rank" in answer.column_names:
        keep = pc.is_in(answer["rank"], value_set=pa.array(with_rows, pa.int32()))
    else:  # of all ranks together
        keep = pa.scalar(not set(ranks).isdisjoint(with_rows))
    for name in columns:
        kind = answer.schema.field(name)
        held = pc.or_kleene(keep, pc.not_equal(answer[name], 0))
        values = pc.if_else(held, answer[name], pa.scalar(None, kind.type))
        answer = answer.set_column(answer.schema.get_field_index(name), kind, values)
    return answer


def _table(trace: Trace, name: str) -> pa.Table:
    """A table of the vocabulary, or what another analysis answers by default: without rows where
    what it needs was not recorded."""
    if name in TABLES or name in DERIVED:
        return trace.tables[name]
    other = find(name)
    if any(trace.lacks(needed) for needed in other.needs):
        return other.returns.empty_table()
    return _table_of_answer(trace, other, {})


def _reads(chosen: Analysis[...]) -> set[str]:
    """The tables that an answer rests on, through the analyses that it builds on."""
    tables: set[str] = set()
    for name in chosen.reads:
        tables |= {name} if name in TABLES or name in DERIVED else _reads(find(name))
    return tables
