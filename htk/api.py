"""The guests' door: open a trace, ask a question of it."""

from typing import Any

import pyarrow as pa

from htk.analyses import ANALYSES, find
from htk.analysis import Analysis, coverage_of
from htk.coverage import coverage
from htk.errors import UsageError
from htk.opening import Inputs, OpenOptions, open_trace
from htk.result import Result
from htk.schema import DERIVED, TABLES
from htk.trace import Trace


def open(
    inputs: Inputs,
    *,
    cache: bool = True,
    strict: bool = False,
    rank: int | None = None,
    rank_pattern: str | None = None,
    keep_unknown_arguments: bool = False,
    cache_by_content: bool = False,
) -> Trace:
    """Open a trace: a file, a folder, a glob, several, an archive, a URL, or 'sample'."""
    options = OpenOptions(
        cache, strict, rank, rank_pattern, keep_unknown_arguments, cache_by_content
    )
    return open_trace(inputs, options)


def catalog() -> dict[str, str]:
    """Every analysis by name, and the question it answers."""
    return {name: entry.question for name, entry in ANALYSES.items()}


def run(trace: Trace, name: str, **options: Any) -> Result:
    """Ask one question of a trace."""
    chosen = find(name)
    unknown = sorted(set(options) - set(chosen.options))
    if unknown:
        raise UsageError(
            f"{chosen.name} has no option {unknown[0]!r}; it has {', '.join(chosen.options)}"
        )
    trace.check_selection()
    table = _ask(trace, chosen, options)
    facts = coverage(trace, _reads(chosen)) | dict(coverage_of(table))
    return Result(chosen, table, facts)


def _ask(trace: Trace, chosen: Analysis[...], options: dict[str, Any]) -> pa.Table:
    for name in chosen.needs:
        trace.need(name)
    return chosen(*(_table(trace, read) for read in chosen.reads), **options)


def _table(trace: Trace, name: str) -> pa.Table:
    """A table of the vocabulary, or what another analysis answers by default."""
    if name in TABLES or name in DERIVED:
        return trace.tables[name]
    return _ask(trace, find(name), {})


def _reads(chosen: Analysis[...]) -> set[str]:
    """The tables that an answer rests on, through the analyses that it builds on."""
    found: set[str] = set()
    for name in chosen.reads:
        found |= {name} if name in TABLES or name in DERIVED else _reads(find(name))
    return found
