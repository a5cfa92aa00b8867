"""One file: its beginning, the parser that recognises it, and what that reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pyarrow as pa

from htk.base.core.parser import Head, Parsed, ParseOptions, Parser, Source
from htk.base.core.stated_counts import DEVICES, RANK, RANKS
from htk.base.errors import HtkError, MalformedTrace, TraceError, UnknownFormat
from htk.base.io.raw_files import spell_reason
from htk.base.io.sources import read_head
from htk.parsers import in_turn, list_parsers

_BELIEVED = {"rank": RANK, "world_size": RANKS, "device_count": DEVICES}


def parse(source: Source, options: ParseOptions) -> Parsed:
    """Return what the first parser that recognises a file reads of it."""
    return parse_with(parser_of(read_beginning(source)), source, options)


def read_beginning(source: Source) -> Head:
    """Return the first bytes of a file. Raises for one without content."""
    start = read_head(source)
    if not start.data.strip():
        raise MalformedTrace(f"{source.name}: empty file, expected a trace; was the run killed?")
    return start


def parser_of(start: Head) -> Parser:
    """Return the first parser that recognises a file by its first bytes."""
    for parser in in_turn(start.data):
        with _blaming_plugin(parser, start.name):
            if parser.sniff(start):
                return parser
    names = ", ".join(p.NAME for p in list_parsers())
    raise UnknownFormat(
        f"{start.name}: not a trace that htk knows ({names}); `htk formats` shows what it reads"
    )


def parse_with(parser: Parser, source: Source, options: ParseOptions) -> Parsed:
    """Return what a parser reads of a file, under its name."""
    with _blaming_plugin(parser, source.name):
        parsed = parser.parse(source, options)
    first, *others = (
        drop_absurd_counts(replace(process, parser=parser.NAME))
        for process in (parsed, *parsed.others)
    )
    return replace(first, others=tuple(others))


@contextmanager
def _blaming_plugin(parser: Parser, file: str) -> Iterator[None]:
    """Name the parser of another package where it fails: the file is not to blame."""
    try:
        yield
    except Exception as error:
        if isinstance(error, HtkError) or getattr(parser, "__name__", "").startswith("htk."):
            raise
        what = f"{type(error).__name__}: {spell_reason(error)[:200]}"
        raise TraceError(
            f"{file}: the parser {parser.NAME!r} of a plugin failed: {what}"
        ) from error


def drop_absurd_counts(parsed: Parsed) -> Parsed:
    """Return the recording without counts of ranks that no job has, which become issues."""
    stated = {**parsed.facts, "rank": parsed.rank, "world_size": parsed.world_size}
    absurd = {
        name: stated[name]
        for name, believed in _BELIEVED.items()
        if stated.get(name) is not None and not believed.believes(stated[name])
    }
    if not absurd:
        return parsed
    from htk.parsers.common.log_records import Issues

    issues = Issues()
    for name, count in absurd.items():
        most = _BELIEVED[name].most
        issues.add("absurd_count", f"{name} {count:,}; at most {most:,} is believed")
    before = [parsed.tables[name] for name in ("parse_issues",) if name in parsed.tables]
    all_issues = pa.concat_tables([*before, issues.table()], promote_options="default")
    believed = {name: value for name, value in stated.items() if name not in absurd}
    return replace(
        parsed,
        tables={**parsed.tables, "parse_issues": all_issues},
        rank=cast(int | None, believed.get("rank")),
        world_size=cast(int | None, believed.get("world_size")),
        facts={name: value for name, value in parsed.facts.items() if name not in absurd},
    )


def describe_damage(name: str, error: Exception) -> str:
    """Return what is said of a file whose damage its parser did not foresee."""
    if isinstance(error, MemoryError):
        return f"{name}: needs more memory than there is"
    return (
        f"{name}: could not be read; is it damaged? If not, please report it "
        f"({type(error).__name__}: {spell_reason(error)[:200]})"
    )
