"""SQL over a trace: the vocabulary's tables, every analysis as a view or a table function.

`select * from kernels` reads a table, `select * from time_breakdown` an analysis as it answers by
default, `select * from kernel_top(n := 3, by := 'mean')` one with options. Only what a query names
is made. Nothing but one reading statement runs, files and network are out of its reach, and it
ends at its time and memory limits.
"""

import ast
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.analyses import ANALYSES, find
from htk.answers.ask import ask
from htk.core.analysis import Analysis
from htk.errors import HtkError, UsageError
from htk.export.dataset import read_dataset
from htk.output.result import Result
from htk.schema import DERIVED, TABLES
from htk.trace.coverage import coverage
from htk.trace.trace import Trace

_READING = {"SELECT", "EXPLAIN"}
# Comments and text of a query, or a name with what stands in its brackets. Text that is a name and
# no more is one too: the interval macros take names so.
_TOKEN = re.compile(
    r"'(?P<quoted>\w+)'|(?P<skip>'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/)"
    r"|(?P<name>\b[A-Za-z_]\w*\b)(?:\s*\((?P<args>(?:[^()']|'(?:[^']|'')*')*)\))?",
    re.DOTALL,
)
_ARGUMENT = re.compile(r"\s*(\w+)\s*(?::=|=>|=)\s*('(?:[^']|'')*'|[-+.\w]+)\s*(?:,|$)")


@dataclass(frozen=True)
class Limits:
    """What a query may take before it is stopped."""

    seconds: float = 60.0
    memory: str = "4GB"


@dataclass
class _Asked:
    """A query made ready: its text, the relations it reads, and what could not be had."""

    text: str
    relations: dict[str, pa.Table] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)


def query(trace: Trace, text: str, limits: Limits | None = None) -> Result:
    """The answer to one SQL query."""
    asked = _prepared(trace, text)
    table = _run(asked.text, asked.relations, limits or Limits(), asked.missing)
    facts = coverage(trace, asked.reads)
    return Result(_label(table), table, facts)


def query_dataset(folder: Path, text: str, limits: Limits | None = None) -> Result:
    """The same over a folder that `htk convert --to parquet` wrote: its tables are scanned from
    disk; what an analysis reads, and what is derived of them, is made in memory."""
    tables = dataset_tables(folder)
    trace = read_dataset(folder)
    asked = _prepared(trace, text, tables)
    if "ranks" not in tables:
        why = "the dataset holds some tables only; ask an analysis of the trace it was made from"
        asked.missing |= dict.fromkeys(ANALYSES, why)
    table = _run(asked.text, asked.relations, limits or Limits(), asked.missing, tables)
    facts = coverage(trace, asked.reads) if asked.reads else {}
    return Result(_label(table), table, {**facts, "dataset": str(folder)})


def dataset_tables(folder: Path) -> dict[str, str]:
    """Tables of a Parquet dataset, and the pattern of their files; none where it is no dataset."""
    known = {**TABLES, **DERIVED}
    found = {}
    for name in known if folder.is_dir() else ():
        if next(folder.glob(f"{name}/**/*.parquet"), None) is not None:
            found[name] = str(folder.resolve() / name / "**" / "*.parquet")
    return found


def relations() -> dict[str, str]:
    """Every name that a query may read, and what it is."""
    made = {name: "table" for name in TABLES} | {name: "derived table" for name in DERIVED}
    return made | {name: entry.question for name, entry in ANALYSES.items()}


def columns(name: str) -> pa.Schema:
    """The columns of a table or an analysis."""
    known = {**TABLES, **DERIVED}
    return known[name] if name in known else find(name).returns


def _prepared(trace: Trace, text: str, scanned: Collection[str] = ()) -> _Asked:
    """Make what the query names and nobody scans; a call with options becomes a relation of its
    own."""
    asked = _Asked(text)
    pieces, last = [], 0
    for match, name, given in _named(text):
        if name in scanned:
            continue
        if given is None:
            _make(trace, asked, name, name, {})
            continue
        relation = f"{name}__{len(asked.relations)}"
        _make(trace, asked, relation, name, _options(name, given))
        pieces += [text[last : match.start()], relation]
        last = match.end()
    asked.text = "".join([*pieces, text[last:]])
    return asked


def _named(text: str) -> Iterator[tuple[re.Match[str], str, str | None]]:
    """Names of tables and analyses in a query; for a call of an analysis, what it is given."""
    place = 0
    while match := _TOKEN.search(text, place):
        place = match.end()
        if match["skip"]:
            continue
        name = (match["name"] or match["quoted"]).lower()
        called = name in ANALYSES and match["args"] is not None
        if not called and match["name"]:
            place = match.end("name")  # what stands in the brackets may name tables too
        if name in ANALYSES or name in TABLES or name in DERIVED:
            yield match, name, match["args"] if called else None


def _make(trace: Trace, asked: _Asked, relation: str, name: str, options: dict[str, Any]) -> None:
    if relation in asked.relations or relation in asked.missing:
        return
    if name in TABLES or name in DERIVED:
        asked.relations[relation] = trace.tables[name]
        asked.reads.add(name)
        return
    try:
        answer = ask(trace, name, **options)
    except UsageError:
        raise
    except HtkError as error:  # told when the query turns out to need it
        asked.missing[relation] = str(error)
        return
    asked.relations[relation] = answer.table
    asked.reads |= set(find(name).reads) & {*TABLES, *DERIVED}


def _options(name: str, given: str) -> dict[str, Any]:
    """`n := 3, by := 'mean'` as the options of an analysis."""
    options, place = {}, 0
    while place < len(given) and given[place:].strip():
        match = _ARGUMENT.match(given, place)
        if match is None:
            raise UsageError(f"{name}({given}): expected OPTION := VALUE, …, such as n := 3")
        options[match[1]] = _value(match[2])
        place = match.end()
    return options


def _value(text: str) -> Any:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(f"{text}: expected a number, true, false or 'text'") from None


def _run(
    text: str,
    tables: Mapping[str, pa.Table],
    limits: Limits,
    missing: Mapping[str, str],
    dataset: Mapping[str, str] | None = None,
) -> pa.Table:
    import duckdb

    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    try:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(macros())
        _fence(connection, limits, dataset or {})
        _refuse_writing(text)
        return _within(connection, text, limits)
    except duckdb.Error as error:
        raise UsageError(_plain(error, missing)) from None
    finally:
        connection.close()


def macros() -> str:
    """The macros that every query may use."""
    return files("htk.query").joinpath("macros.sql").read_text(encoding="utf-8")


def _fence(connection: Any, limits: Limits, dataset: Mapping[str, str]) -> None:
    """From here on a query reaches neither files nor network, and cannot change that."""
    for name, pattern in dataset.items():
        where = pattern.replace("'", "''")
        connection.execute(
            f"CREATE VIEW {name} AS FROM read_parquet('{where}', hive_partitioning = true)"
        )
    if dataset:
        folders = [pattern.rpartition("/**/")[0] + "/" for pattern in dataset.values()]
        allowed = ", ".join("'" + folder.replace("'", "''") + "'" for folder in folders)
        connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET temp_directory = ''")
    connection.execute("SET memory_limit = '" + limits.memory.replace("'", "") + "'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _refuse_writing(text: str) -> None:
    import duckdb

    statements = duckdb.extract_statements(text)
    kinds = [statement.type.name for statement in statements]
    if len(kinds) != 1 or kinds[0] not in _READING:
        seen = " and ".join(kinds).lower() or "nothing"
        raise UsageError(f"sql: one reading statement is expected (SELECT, WITH, …), not {seen}")


def _within(connection: Any, text: str, limits: Limits) -> pa.Table:
    import duckdb

    stop = threading.Timer(limits.seconds, connection.interrupt)
    stop.start()
    try:
        answer = connection.sql(text)
        return pa.table({}) if answer is None else _plain_numbers(answer.to_arrow_table())
    except duckdb.InterruptException:
        raise UsageError(
            f"sql: stopped after {limits.seconds:g} s; narrow the query or raise --seconds"
        ) from None
    except duckdb.OutOfMemoryException:
        raise UsageError(
            f"sql: stopped at {limits.memory} of memory; narrow the query or raise --memory"
        ) from None
    finally:
        stop.cancel()


def _plain_numbers(table: pa.Table) -> pa.Table:
    """Decimals as whole numbers where they are and fit, else as floats: sums of whole numbers come
    with 38 digits, which neither units nor JSON know."""
    for place, column_field in enumerate(table.schema):
        if not pa.types.is_decimal(column_field.type):
            continue
        column = table.column(place)
        try:
            column = column.cast(pa.int64() if column_field.type.scale == 0 else pa.float64())
        except pa.ArrowInvalid:
            column = column.cast(pa.float64())
        table = table.set_column(place, column_field.name, column)
    return table


def _plain(error: Exception, missing: Mapping[str, str]) -> str:
    """What DuckDB has to say, on one line, with the name that was probably meant."""
    said = str(error).strip()
    first = said.splitlines()[0] if said else type(error).__name__
    match = re.search(r"(?:Table|Table Function) with name \"?(\w+)\"?", said)
    if match and match[1] in missing:
        return f"sql: {match[1]}: {missing[match[1]]}"
    if match:
        near = get_close_matches(match[1], relations(), 3)
        hint = (
            f"did you mean {', '.join(near)}?" if near else "htk sql PATH, then .tables lists all"
        )
        return f"sql: no table or analysis {match[1]!r}; {hint}"
    return f"sql: {first}"


def _label(table: pa.Table) -> Analysis[...]:
    def sql() -> pa.Table:
        """What does the query answer?"""
        return table

    return Analysis(sql, table.schema)
