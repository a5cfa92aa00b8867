"""Files of lines: each line is shown to the readers of its formats, and accounted for.

A job's log holds NCCL's lines, a benchmark's table, the watchdog's complaints and Python's stacks,
one among the other. The format that a file is called by is the first whose mark its head has; all
are read. A file of one record a line has one reader, and what that cannot read is broken.
"""

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Facts, Fields
from htk.parsers.common.log_lines import LONGEST_LOG_LINE, LogLine, read_lines, without_prefixes
from htk.parsers.common.log_records import Issues, RowBuffer, compact_json, table_of

READ = "read"
SKIPPED = "skipped"  # of a known format, and nothing that htk asks for
UNKNOWN = "unknown"


@dataclass
class LogPart:
    """What one format's lines hold."""

    tables: Mapping[str, list[Fields] | RowBuffer]
    facts: Facts = field(default_factory=dict)


class LineReader(Protocol):
    """Reads the lines of one format, wherever they stand."""

    def read(self, line: LogLine) -> str | None:
        """Return READ, SKIPPED, UNKNOWN for a broken line of which an issue tells, or None for a
        line of another format."""

    def finish(self) -> LogPart: ...


@dataclass(frozen=True)
class LineFormat:
    """A format of lines: its name, what a file's head shows of it, and who reads it."""

    name: str
    mark: re.Pattern[bytes]
    reader: Callable[[str, Issues], LineReader]  # of a file's name


# In the order in which they name a file.
_FORMATS = (
    "nccl_tests",
    "nccl_debug",
    "watchdog",
    "ras",
    "debug_server",
    "python_stacks",
    "job_log",
)


@cache
def line_formats() -> tuple[LineFormat, ...]:
    """Return every format of lines. They use this module, so they are imported by name."""
    modules = (importlib.import_module(f"htk.parsers.{name}") for name in _FORMATS)
    return tuple(module.LINES for module in modules)


def log_format(head: Head) -> str | None:
    """Return the first format of which a text shows a line; None: it shows none, or is JSON."""
    return None if begins_as_json(head.data) else _format_shown(head.data)


_JSON = re.compile(rb"""\s{0,99}(?:[{\[]["{\r\n\t \]]|[{\[]$)""")
_KERNEL_TIME = re.compile(rb"\s{0,99}\[\s{0,9}\d{1,9}\.\d{1,9}\] ")  # dmesg: [ 98.512] NVRM: …


def begins_as_json(data: bytes) -> bool:
    """Return whether a text begins as JSON does, and not as a line with its time in brackets."""
    return _JSON.match(data) is not None and _KERNEL_TIME.match(data) is None


@lru_cache(maxsize=8)  # each format asks about the same head
def _format_shown(data: bytes) -> str | None:
    bare = without_prefixes(data)
    return next((f.name for f in line_formats() if f.mark.search(bare)), None)


def parse_log(source: Source, options: ParseOptions) -> Parsed:
    """Read the lines of every known format."""
    issues = Issues()
    readers = {f.name: f.reader(source.file_name, issues) for f in line_formats()}
    lines = read_lines(source, issues, options.progress, longest=LONGEST_LOG_LINE)
    missing = "no complete line of a log format that htk reads"
    return _parse_lines(source, lines, readers, issues, missing)


def parse_records(
    source: Source,
    options: ParseOptions,
    name: str,
    reader: Callable[[str, Issues], LineReader],
    missing: str,
    lines: Callable[[Source, Issues, Callable[[int], None] | None], Iterable[LogLine]] = read_lines,
) -> Parsed:
    """Read a file of one format's lines alone; `missing` says what a file without any lacks."""
    issues = Issues()
    readers = {name: reader(source.file_name, issues)}
    return _parse_lines(source, lines(source, issues, options.progress), readers, issues, missing)


def _parse_lines(
    source: Source,
    lines: Iterable[LogLine],
    readers: Mapping[str, LineReader],
    issues: Issues,
    missing: str,
) -> Parsed:
    alone = len(readers) == 1
    counts: Counter[tuple[str | None, str]] = Counter()
    for line in lines:
        reading = _ask_readers(readers, line)
        counts[reading] += 1
        if alone and reading == (None, UNKNOWN):
            issues.add("broken_line", line.text[:80], line.offset)
    if not any(counts[name, READ] or (counts[name, SKIPPED] and not alone) for name in readers):
        raise MalformedTrace(f"{source.name}: {missing}")
    parts = {name: reader.finish() for name, reader in readers.items()}
    return Parsed(_build_tables(parts, counts, issues), facts=_collect_facts(parts, counts, issues))


def _ask_readers(readers: Mapping[str, LineReader], line: LogLine) -> tuple[str | None, str]:
    if not line.text.strip():
        return None, SKIPPED
    for name, reader in readers.items():
        reading = reader.read(line)
        if reading is not None:
            return name, reading
    return None, UNKNOWN


def _build_tables(
    parts: Mapping[str, LogPart], counts: Counter[tuple[str | None, str]], issues: Issues
) -> Fields:
    lines = [
        {"source": name, "reading": reading, "lines": count}
        for (name, reading), count in counts.items()
    ]
    pieces = {"log_lines": [table_of("log_lines", lines, of_one_rank=False)]}
    for part in parts.values():
        for name, rows in part.tables.items():
            if not isinstance(rows, RowBuffer):
                pieces.setdefault(name, []).append(table_of(name, rows, of_one_rank=False))
            else:
                pieces.setdefault(name, []).append(rows.table())
    tables = {
        name: pa.concat_tables(some).unify_dictionaries().combine_chunks()
        for name, some in pieces.items()
    }
    if (calls := tables.get("collectives")) is not None:  # numbered over all formats of the file
        events = pa.array(np.arange(calls.num_rows, dtype=np.int64))
        tables["collectives"] = calls.set_column(
            calls.column_names.index("event"), calls.schema.field("event"), events
        )
    return tables | {"parse_issues": issues.table()}


def _collect_facts(
    parts: Mapping[str, LogPart], counts: Counter[tuple[str | None, str]], issues: Issues
) -> dict[str, object]:
    facts: dict[str, object] = {}
    versions: dict[str, object] = {}
    for part in parts.values():
        facts |= {key: value for key, value in part.facts.items() if value is not None}
        versions |= json.loads(str(part.facts.get("versions") or "{}"))
    if versions:
        facts["versions"] = compact_json(versions)
    events = [part.facts.get("events", counts[name, READ]) for name, part in parts.items()]
    return facts | {"events": sum(map(int, events)), "truncated": issues.has("truncated")}
