"""DuckDB behind a fence, in a process of its own: reads requests, writes answers.

The process reads no file but a dataset's, reaches no network, and may be killed at any moment. It
imports little of htk, so that it starts fast. A request is a line of JSON,
followed by an Arrow stream where it brings a table; so is an answer.
"""

import faulthandler
import json
import os
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.ipc

from htk.base.core.process_limits import limit_private_bytes, private_bytes
from htk.base.mappings import Facts, Fields
from htk.base.schema import FLOAT64, INT32, INT64, STRING
from htk.verdicts.query.tokens import split_into_tokens

_READING = {"SELECT", "EXPLAIN"}
_SLACK_BYTES = 512 << 20  # stacks of DuckDB's threads, and the answer on its way out
_ORPHANED_S = 5.0  # a process that nobody stopped at its limit ends itself that much later
# What an answer may hold as it is: everything else is answered as text.
_KEPT = {
    "boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger",
    "ubigint", "hugeint", "float", "double", "decimal", "varchar", "date", "timestamp",
}  # fmt: skip
_SILENT = open(os.devnull, "w")  # noqa: SIM115
_LONGEST_REASON = 10_000


class RefusedQuery(Exception):
    """A query that is not answered: the kind of reason, and the reason."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    engine = None
    while line := requests.readline():
        request = json.loads(line)
        if request["do"] == "start":
            engine = _Engine(**request["with"])
        elif request["do"] == "relation" and engine is not None:
            engine.register(request["name"], pa.ipc.open_stream(requests).read_all())
        elif request["do"] == "query" and engine is not None:
            _answer_request(engine, request, answers)


def _answer_request(engine: "_Engine", request: Fields, answers: BinaryIO) -> None:
    try:
        table = engine.query(request["text"], request["seconds"], request["values"])
    except RefusedQuery as refusal:
        _send_facts(answers, {"refused": refusal.kind, "why": str(refusal)})
    except (MemoryError, pa.ArrowMemoryError):
        _send_facts(answers, {"refused": "memory", "why": ""})
    except Exception as error:  # of DuckDB, or of Arrow for a value that it cannot hold
        why = str(error)[:_LONGEST_REASON] or type(error).__name__
        _send_facts(answers, {"refused": "error", "why": why})
    else:
        _send_facts(answers, {"rows": table.num_rows})
        with pa.ipc.new_stream(answers, table.schema) as stream:
            stream.write_table(table)
        answers.flush()


def _send_facts(answers: BinaryIO, facts: Facts) -> None:
    answers.write(json.dumps(facts).encode() + b"\n")
    answers.flush()


class _Engine:
    """A connection that reads the relations it was given, and nothing else."""

    def __init__(self, memory_bytes: int, macros: str, dataset: Mapping[str, str]) -> None:
        self._memory_bytes = memory_bytes
        self._connection = duckdb.connect(
            ":memory:", config={"python_enable_replacements": "false"}
        )
        self._connection.execute(macros)
        self._close_off_files(dataset)
        self._base_bytes = private_bytes()  # with the tables, what no query is charged for
        self._table_bytes: dict[str, int] = {}

    def _close_off_files(self, dataset: Mapping[str, str]) -> None:
        """From here on a query reaches neither files nor network, and cannot change that."""
        run = self._connection.execute
        for name, pattern in dataset.items():
            run(
                f"CREATE VIEW {name} AS"
                f" FROM read_parquet({_quote_text(pattern)}, hive_partitioning = true)"
            )
        if dataset:
            folders = (pattern.rpartition("/**/")[0] + "/" for pattern in dataset.values())
            run(f"SET allowed_directories = [{', '.join(map(_quote_text, folders))}]")
        # They show whose machine it is, in errors too; an empty one of these two is a default.
        for folder in ("extension_directory", "home_directory"):
            run(f"SET {folder} = '/none'")
        for folder in ("secret_directory", "temp_directory"):
            run(f"SET {folder} = ''")
        run(f"SET memory_limit = '{self._memory_bytes}B'")
        run("SET enable_external_access = false")
        run("SET lock_configuration = true")

    def register(self, name: str, table: pa.Table) -> None:
        """Make a relation readable; one of the same name is replaced."""
        self._connection.register(name, table)
        self._table_bytes[name] = table.nbytes

    def query(self, text: str, seconds: float, values: Any) -> pa.Table:
        """Return the answer to one reading statement; `values` stand for its parameters."""
        kinds = [statement.type.name for statement in self._connection.extract_statements(text)]
        is_pivot = kinds == ["MULTI"] and _is_pivot(text)
        if len(kinds) != 1 or (kinds[0] not in _READING and not is_pivot):
            seen = " and ".join(kinds).lower() or "nothing"
            raise RefusedQuery("statement", seen)
        stop = threading.Timer(seconds, self._connection.interrupt)
        held = self._base_bytes + sum(self._table_bytes.values())
        limit_private_bytes(held + self._memory_bytes + _SLACK_BYTES)
        faulthandler.dump_traceback_later(max(seconds, 0) + _ORPHANED_S, exit=True, file=_SILENT)
        stop.start()
        try:
            return self._query_table(text, values)
        except duckdb.InterruptException:
            raise RefusedQuery("time", "") from None
        except duckdb.OutOfMemoryException:
            raise RefusedQuery("memory", "") from None
        finally:
            stop.cancel()
            faulthandler.cancel_dump_traceback_later()
            limit_private_bytes(None)

    def _query_table(self, text: str, values: Any) -> pa.Table:
        relation = self._connection.sql(text, params=values or None)
        if relation is None:
            return pa.table({})
        if not all(_is_kept(kind) for kind in relation.types):
            relation = relation.project(
                ", ".join(
                    f"{_spell_column(number, kind)} AS {_quote_identifier(name)}"
                    for number, (name, kind) in enumerate(
                        zip(relation.columns, relation.types, strict=True), 1
                    )
                )
            )
        table = _plain_numbers(relation.to_arrow_table())
        table = _finite_numbers(table)
        _check_times(table)
        return table


def _spell_column(number: int, kind: Any) -> str:
    """Return the expression of a column as Python can hold it: maps are JSON, as structs are."""
    if kind.id == "map":
        return f"to_json(#{number})"
    return f"#{number}" if _is_kept(kind) else f"#{number}::VARCHAR"


def _is_kept(kind: Any) -> bool:
    """Return whether Python holds every value of a type."""
    if kind.id in ("list", "array", "struct"):
        return all(_holds_plain(inner) for _, inner in kind.children if not isinstance(inner, int))
    return kind.id in _KEPT


def _holds_plain(kind: Any) -> bool:
    return kind.id not in ("date", "timestamp", "decimal", "hugeint") and _is_kept(kind)


def _plain_numbers(table: pa.Table) -> pa.Table:
    """Decimals as whole numbers where they are and fit, else as floats: sums of whole numbers come
    with 38 digits, which neither units nor JSON know. Whole numbers that do not fit are texts, so
    that every format has all their digits."""
    for number, field in enumerate(table.schema):
        if not pa.types.is_decimal(field.type):
            continue
        column = table.column(number)
        try:
            column = column.cast(INT64 if field.type.scale == 0 else FLOAT64)
        except pa.ArrowInvalid:
            column = column.cast(STRING if field.type.scale == 0 else FLOAT64)
        table = table.set_column(number, field.name, column)
    return table


def _finite_numbers(table: pa.Table) -> pa.Table:
    """Return the table, null where a number is infinite or none: no format but some has such."""
    import pyarrow.compute as pc

    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table.column(number)
            finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, field.type))
            table = table.set_column(number, field, finite)
    return table


def _is_pivot(text: str) -> bool:
    """Return whether a statement that DuckDB runs in parts is a PIVOT, which only reads."""
    words = [word.value.lower() for word in split_into_tokens(text) if word.kind == "name"]
    return "pivot" in words and words[0] in ("from", "pivot", "select", "with")


_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY, _AFTER_LAST_DAY = -719_162, 2_932_897  # of the years 1 and 9999, from 1970


def _check_times(table: pa.Table) -> None:
    """Refuse dates that Python's calendar does not have."""
    import pyarrow.compute as pc

    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            counts = column.cast(INT64)
            day = _DAY[field.type.unit]
        elif pa.types.is_date32(field.type):
            counts = column.cast(INT32)
            day = 1
        else:
            continue
        range_ = pc.min_max(counts).as_py()
        if range_["min"] is None:
            continue
        if range_["min"] < _FIRST_DAY * day or range_["max"] >= _AFTER_LAST_DAY * day:
            raise RefusedQuery(
                "error",
                f"column {field.name!r} holds times outside of the years 1 to 9999;"
                f" ask for text: {_quote_identifier(field.name)}::varchar",
            )


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
