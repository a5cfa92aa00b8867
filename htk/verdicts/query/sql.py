"""SQL over a trace: the vocabulary's tables, every analysis as a view or a table function.

`select * from kernels` reads a table, `select * from time_breakdown` an analysis as it answers by
default, `select * from kernel_top(n := 3, sort_by := 'mean')` one with options. Only what a query
names is made. Nothing but one reading statement runs, files and network are out of its reach, and
it ends at its time and memory limits.
"""

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.export.dataset import read_dataset
from htk.answers.output.result import Result
from htk.base.core.label import Label
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.base.schema import DERIVED, TABLES
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.trace import Trace
from htk.verdicts.query.meanings import list_candidates
from htk.verdicts.query.tokens import Token, split_into_tokens
from htk.verdicts.query.views import VIEWS
from htk.verdicts.query.worker import Limits, QueryValues, Refusal, worker_of

_BASE_TABLES = {**TABLES, **DERIVED}
_NO_TABLE = re.compile(r"Table(?: Function)? with name \"?(.+?)\"? does not exist")
_NO_COLUMN = re.compile(
    r"Referenced column \"(.+?)\" (?:not found|was not found)"
    r"|\"(?P<table>.+?)\" does not have a column named \"(.+?)\""
)
_CANDIDATES = re.compile(r"Candidate bindings?: (.+)")
_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.I)
_LABEL = Label("sql", "What does the query answer?")


@dataclass
class Prepared:
    """A query made ready: its text, the relations it reads, and what could not be had."""

    trace: Trace
    text: str
    relations: dict[str, pa.Table] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
    dataset: Mapping[str, str] = field(default_factory=dict)

    def run(self, limits: Limits | None = None, values: QueryValues = ()) -> Result:
        """Answer it within its limits; `values` stand for its parameters."""
        limits = limits or Limits()
        worker = worker_of(self.trace.everything, limits.memory_bytes, self.dataset)
        try:
            table = worker.query(self.text, self.relations, limits.seconds, values)
        except Refusal as refusal:
            raise UsageError(self._in_words(refusal, limits)) from None
        facts = describe_coverage(self.trace, self.reads) if self.reads or not self.dataset else {}
        return Result(_LABEL, table, facts)

    def _in_words(self, refusal: Refusal, limits: Limits) -> str:
        narrower = "narrow the query or raise"
        match refusal.kind:
            case "statement":
                expected = "one reading statement is expected (SELECT, WITH, …)"
                return f"sql: {expected}, not {refusal.why}"
            case "time" | "killed":
                return f"sql: stopped after {limits.seconds:g} s; {narrower} --seconds"
            case "memory":
                return f"sql: stopped at {limits.memory} of memory; {narrower} --memory"
            case "died":
                return (
                    f"sql: the query ended DuckDB's process, most likely near {limits.memory}"
                    f" of memory; {narrower} --memory"
                )
            case "cancelled":
                return "sql: cancelled"
        return self._of_duckdb(refusal.why)

    def _of_duckdb(self, message: str) -> str:
        """Put what DuckDB has to say on one line, with the names that were probably meant."""
        first = message.strip().splitlines()[0] if message.strip() else "DuckDB gave no reason"
        if match := _NO_TABLE.search(message):
            name = match[1]
            if name in self.missing:
                return f"sql: {name}: {self.missing[name]}"
            near = get_close_matches(name, list_relations(), 3)
            hint = f"did you mean {', '.join(near)}?" if near else "`.tables` lists all"
            return f"sql: no table or analysis {name!r}; {hint}"
        if match := _NO_COLUMN.search(message):
            name = match[1] or match[3]
            return f"sql: no column {name!r}{self._suggest_meant(name, message)}"
        return f"sql: {textwrap.shorten(first, 300, placeholder='…')}"

    def _suggest_meant(self, name: str, message: str) -> str:
        """Return what a mistaken column may stand for, here and in a joined view."""
        read = {n: tuple(t.column_names) for n, t in self.relations.items()}
        read |= {t: tuple(_BASE_TABLES[t].names) for t in self.dataset if t in self.text}
        views = {
            view: tuple(entry.columns.names)
            for view, entry in VIEWS.items()
            if entry.reads[0] in read and not self.dataset
        }
        near, elsewhere = list_candidates(name, read, views)
        if not (near or elsewhere) and (match := _CANDIDATES.search(message)):
            near = re.findall(r'"([^"]+)"', match[1])[:3]
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        return hint + "".join(f"; {view} has {column}" for view, column in elsewhere.items())


class _Naming(NamedTuple):
    """A place where a query names a relation; for a call of an analysis, its options."""

    name: str
    start: int
    end: int
    options: list[Token] | None = None


def run_query(
    trace: Trace, text: str, limits: Limits | None = None, values: QueryValues = ()
) -> Result:
    """Return the answer to one SQL query; `values` stand for its parameters."""
    return prepare_query(trace, text).run(limits, values)


def query_dataset(
    folder: Path, text: str, limits: Limits | None = None, values: QueryValues = ()
) -> Result:
    """Return the answer to one SQL query over a folder that `htk convert --format parquet` wrote.

    Its tables are scanned from disk; what an analysis reads, and what is derived of them, is made
    in memory.
    """
    tables = dataset_tables(folder)
    prepared = prepare_query(read_dataset(folder), text, tables)
    prepared.dataset = tables
    if "ranks" not in tables:
        why = "the dataset holds some tables only; ask an analysis of the trace it was made from"
        prepared.missing |= dict.fromkeys(ANALYSES, why)
    answer = prepared.run(limits, values)
    return Result(answer.analysis, answer.table, {**answer.coverage, "dataset": str(folder)})


def dataset_tables(folder: Path) -> dict[str, str]:
    """Return the tables of a Parquet dataset and the pattern of their files; none where it is no
    dataset."""
    patterns = {}
    for name in _BASE_TABLES if folder.is_dir() else ():
        if next(folder.glob(f"{name}/**/*.parquet"), None) is not None:
            patterns[name] = str(folder.resolve() / name / "**" / "*.parquet")
    return patterns


def list_relations() -> dict[str, str]:
    """Return every name that a query may read, and what it is."""
    meanings = {name: "table" for name in TABLES} | {name: "derived table" for name in DERIVED}
    meanings |= {name: view.meaning for name, view in VIEWS.items()}
    return meanings | {name: entry.question for name, entry in ANALYSES.items()}


def describe_columns(name: str) -> pa.Schema:
    """Return the columns of a table, a view or an analysis."""
    if name in VIEWS:
        return VIEWS[name].columns
    return _BASE_TABLES[name] if name in _BASE_TABLES else find_analysis(name).returns


def prepare_query(trace: Trace, text: str, scanned: Collection[str] = ()) -> Prepared:
    """Make what a query names and nobody scans; a call with options becomes a relation that is
    called as the call is written."""
    if not text.isascii() and text.encode("utf-8", "ignore").decode() != text:
        raise UsageError("sql: the query is not Unicode text")
    prepared = Prepared(trace, text)
    if _SHOW_TABLES.fullmatch(text):
        names = list_relations()
        prepared.relations["readable"] = pa.table(
            {"name": list(names), "meaning": list(names.values())}
        )
        prepared.text = "from readable"
        return prepared
    pieces = []
    copied = 0
    for naming in _list_names(text):
        if naming.name in scanned:
            continue
        if naming.options is None:
            _make_relation(prepared, naming.name, naming.name, {})
            continue
        options = _parse_options(naming.name, naming.options)
        arguments = ", ".join(f"{key} := {value!r}" for key, value in options.items())
        relation = f"{naming.name}({arguments})"
        _make_relation(prepared, relation, naming.name, options)
        pieces += [text[copied : naming.start], '"' + relation.replace('"', '""') + '"']
        copied = naming.end
    prepared.text = "".join([*pieces, text[copied:]])
    return prepared


def _list_names(text: str) -> Iterator[_Naming]:
    """Yield the names of tables, views and analyses in a query. A text that is a name and no more
    counts too: the interval macros take names so."""
    words = list(split_into_tokens(text))
    names = {*ANALYSES, *_BASE_TABLES, *VIEWS}
    number = 0
    while number < len(words):
        word = words[number]
        number += 1
        name = word.value.lower()
        if word.kind in ("number", "sign") or name not in names:
            continue
        called = name in ANALYSES and word.kind != "text" and number < len(words)
        if not called or words[number].value != "(" or words[number].kind != "sign":
            yield _Naming(name, word.start, word.end)
            continue
        closing = next((n for n in range(number, len(words)) if words[n][:2] == ("sign", ")")), 0)
        if not closing:  # DuckDB says what is wrong with it
            return
        yield _Naming(name, word.start, words[closing].end, words[number + 1 : closing])
        number = closing + 1


def _make_relation(prepared: Prepared, relation: str, name: str, options: Fields) -> None:
    if relation in prepared.relations or relation in prepared.missing:
        return
    if name in VIEWS:
        prepared.relations[relation] = VIEWS[name].make(prepared.trace)
        prepared.reads |= set(VIEWS[name].reads)
        return
    if name in _BASE_TABLES:
        prepared.relations[relation] = prepared.trace.tables[name]
        prepared.reads.add(name)
        return
    try:
        answer = ask_trace(prepared.trace, name, **options)
    except UsageError:
        raise
    except HtkError as error:  # told when the query turns out to need it
        prepared.missing[relation] = str(error)
        return
    prepared.relations[relation] = answer.table
    prepared.reads |= set(find_analysis(name).reads) & set(_BASE_TABLES)


def _parse_options(name: str, words: list[Token]) -> Fields:
    """Return `n := 3, sort_by := 'mean'` as the options of an analysis."""
    options: Fields = {}
    rest = [*words, Token("sign", ",", 0, 0)] if words else []
    while rest:
        end = next(n for n, word in enumerate(rest) if word[:2] == ("sign", ","))
        option = rest[:end]
        rest = rest[end + 1 :]
        if len(option) < 3 or option[0].kind != "name" or option[1].value not in (":=", "=>", "="):
            raise UsageError(f"{name}(…): expected OPTION := VALUE, …, such as n := 3")
        options[option[0].value] = _parse_value(option[2:])
    return options


def _parse_value(words: list[Token]) -> Any:
    if len(words) == 1 and words[0].kind == "text":
        return words[0].value
    literal = "".join(word.value for word in words)
    if literal.lower() in ("true", "false"):
        return literal.lower() == "true"
    try:
        number = ast.literal_eval(literal) if len(words) < 3 else None
    except (ValueError, SyntaxError):
        number = None
    if not isinstance(number, int | float):
        raise UsageError(f"{literal}: expected a number, true, false or 'text'")
    return number
