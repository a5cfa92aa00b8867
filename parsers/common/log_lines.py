"""Text to which several programs write: each line is shown to the readers of all known formats.

A job's log holds NCCL's lines, a benchmark's table, the watchdog's complaints and Python's stacks,
one among the other, each behind what a launcher puts before a line. The format that a file is
called by is the first whose mark its head has; all are read, and each line is accounted for.
"""

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace
from htk.parsers.common.log_records import Issues, compact_json, read_lines, table_of
from htk.parsers.common.log_times import STAMP, YearHint, dated, time_ns

READ = "read"
SKIPPED = "skipped"  # of a known format, and nothing that htk asks for
UNKNOWN = "unknown"

_LONGEST_LINE = 1 << 16
_LATEST_ROWS = 1 << 15
_MOST_PREFIXES = 6  # one line may be numbered by a launcher, a container and a scheduler


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without what launchers put before it."""

    offset: int
    text: str
    origin: str = ""  # who wrote it, as the launcher says; torch's rank is no part of it
    rank: int | None = None  # global, where launcher or torch say so
    stamp: str = ""  # its time as written, by a launcher or by glog
    hint: YearHint | None = None  # of a time without a year

    @property
    def time_ns(self) -> int | None:
        """When it was written, on the host's wall clock; None: not said."""
        return time_ns(self.stamp, self.hint) if self.stamp else None


class RowBuffer:
    """Rows of a table that may be many: older ones are kept as columns, which take less memory.

    A row can be changed until some ten thousand have followed it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._columns: list[pa.Table] = []
        self._rows: list[dict[str, Any]] = []

    def append(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= 2 * _LATEST_ROWS:
            self._columns.append(self._table(self._rows[:_LATEST_ROWS]))
            del self._rows[:_LATEST_ROWS]

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        return table_of(self._name, rows, of_one_rank=False)

    def table(self) -> pa.Table:
        return pa.concat_tables([*self._columns, self._table(self._rows)])


@dataclass
class LogPart:
    """What one format's lines hold."""

    tables: Mapping[str, list[dict[str, Any]] | RowBuffer]
    facts: Mapping[str, Any] = field(default_factory=dict)


class LineReader(Protocol):
    """Reads the lines of one format, wherever they stand."""

    def read(self, line: LogLine) -> str | None:
        """Return READ, SKIPPED, or None for a line of another format."""

    def finish(self) -> LogPart: ...


@dataclass(frozen=True)
class LineFormat:
    """A format of lines: its name, what a file's head shows of it, and who reads it."""

    name: str
    mark: re.Pattern[bytes]
    reader: Callable[[str, Issues], LineReader]  # of a file's name


# In the order in which they name a file.
_FORMATS = ("nccl_tests", "nccl_debug", "watchdog", "ras", "python_stacks")


@cache
def line_formats() -> tuple[LineFormat, ...]:
    """Return every format of lines. They use this module, so they are imported by name."""
    modules = (importlib.import_module(f"htk.parsers.{name}") for name in _FORMATS)
    return tuple(module.LINES for module in modules)


def log_format(head: Head) -> str | None:
    """Return the first format of which a text shows a line; None: it shows none, or is JSON."""
    if head.data.lstrip()[:1] in (b"{", b"[") and head.data.lstrip()[1:2] in b'"{\r\n\t ]':
        return None
    return next((f.name for f in line_formats() if f.mark.search(head.data)), None)


def parse_log(source: Source, options: ParseOptions) -> Parsed:
    """Read the lines of every known format."""
    issues = Issues()
    readers = {f.name: f.reader(source.file_name, issues) for f in line_formats()}
    counts: Counter[tuple[str | None, str]] = Counter()
    for line in _lines(source, issues, options):
        name, reading = _ask(readers, line)
        counts[name, reading] += 1
    if not any(counts[name, reading] for name in readers for reading in (READ, SKIPPED)):
        raise MalformedTrace(f"{source.name}: no whole line of any log that htk knows")
    parts = {name: reader.finish() for name, reader in readers.items()}
    return Parsed(_tables(parts, counts, issues), facts=_facts(parts, counts, issues))


def _ask(readers: Mapping[str, LineReader], line: LogLine) -> tuple[str | None, str]:
    if not line.text.strip():
        return None, SKIPPED
    for name, reader in readers.items():
        reading = reader.read(line)
        if reading is not None:
            return name, reading
    return None, UNKNOWN


def _tables(
    parts: Mapping[str, LogPart], counts: Counter[tuple[str | None, str]], issues: Issues
) -> dict[str, Any]:
    lines = [
        {"source": name, "reading": reading, "lines": count}
        for (name, reading), count in counts.items()
    ]
    pieces: dict[str, list[pa.Table]] = {
        "log_lines": [table_of("log_lines", lines, of_one_rank=False)]
    }
    for part in parts.values():
        for name, rows in part.tables.items():
            if isinstance(rows, RowBuffer):
                piece = rows.table()
            else:
                piece = table_of(name, rows, of_one_rank=False)
            pieces.setdefault(name, []).append(piece)
    tables = {
        name: pa.concat_tables(some).unify_dictionaries().combine_chunks()
        for name, some in pieces.items()
    }
    calls = tables["collectives"]
    events = pa.array(np.arange(calls.num_rows, dtype=np.int64))  # of the file, over all formats
    tables["collectives"] = calls.set_column(
        calls.column_names.index("event"), calls.schema.field("event"), events
    )
    for name in ("log_lines", "bench_points"):
        tables[name] = tables[name].drop_columns("file")  # known to whoever opened it
    return tables | {"parse_issues": issues.table()}


def _facts(
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


def _lines(source: Source, issues: Issues, options: ParseOptions) -> Iterator[LogLine]:
    hint = YearHint(until=_last_written(source))
    for offset, physical in read_lines(source, issues, options.progress):
        for text in physical.split("\r"):  # a progress bar begins its line anew
            if len(text) > _LONGEST_LINE:
                note = f"only its first {_LONGEST_LINE:,} characters are read"
                issues.add("overlong_line", note, offset)
                text = text[:_LONGEST_LINE]
            if text or "\r" not in physical:
                line = unprefixed(offset, text, hint)
                if line.stamp and (day := dated(line.stamp)):
                    hint = YearHint(near=day)
                yield line


def _last_written(source: Source) -> date | None:
    if source.path is None:
        return None
    try:
        return datetime.fromtimestamp(source.path.stat().st_mtime, UTC).date()
    except (OSError, ValueError, OverflowError):
        return None


_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}[mK]")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? "
    r"(?:std(?:out|err) [FP] )?"
)
# Launchers that say the rank of the whole job, and those that only say which process it is.
_RANKED = re.compile(
    r"\[[\w.-]{1,99},(\d{1,6})\]<std(?:out|err)>: ?"  # mpirun --tag-output
    r"|\[rank(\d{1,6})\]: ?"  # torch
    r"|\(\w{1,99}\[rank=(\d{1,6})\] pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ?"  # Ray, of named workers
)
_TAGGED = re.compile(
    r"\(\w{1,99}(?:\([\w=, ]{1,99}\))? pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ?"  # Ray
    r"|\[pod/[^\]\s]{1,255}\] "  # kubectl logs --prefix
    r"|\[[a-z_]{1,32}\d{1,6}\]: ?"  # torchrun --tee: role and local rank
    r"|\[\d{1,6}\] (?=\S)"  # hydra
    r"|[\w.-]{1,64} {1,16}\| "  # docker compose
    r"|(?=[\w.-]{0,63}\d)[\w.-]{1,64}: (?=\S| {2})"  # srun --label, pdsh
)


def unprefixed(offset: int, text: str, hint: YearHint | None = None) -> LogLine:
    """Take off what launchers, containers and schedulers put before a line."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    origin, rank, begin, stamp = "", None, 0, ""
    for _ in range(_MOST_PREFIXES):
        if match := _TIME.match(text, begin):
            begin, stamp = match.end(), match[0]
        elif match := _RANKED.match(text, begin):
            rank = int(next(group for group in match.groups() if group))
            origin, begin = origin + ("" if match[2] else match[0]), match.end()
        elif match := _TAGGED.match(text, begin):
            origin, begin = origin + match[0], match.end()
        else:
            break
    if match := STAMP.match(text, begin):  # the program's own is nearer than a collector's
        stamp = match[0] if match[1] or not dated(stamp) else stamp
    return LogLine(offset, text[begin:] if begin else text, origin, rank, stamp, hint)
