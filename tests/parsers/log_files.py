"""How tests of log files read them: what a parser makes of bytes, and of the samples."""

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from htk.base.core.parser import Parsed, ParseOptions, Parser, Source
from htk.base.io.sources import read_head, resolve_inputs
from htk.parsers import list_parsers

SAMPLES = Path(__file__).parents[2] / "sample_traces"
Row = Mapping[str, Any]


def parsed(parser: Parser, text: str | bytes, name: str = "a.log") -> Parsed:
    data = text if isinstance(text, bytes) else text.encode()
    return parser.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())


def sample(name: str) -> Parsed:
    """Return a sample as the parser reads it that its first bytes call for."""
    (source,) = resolve_inputs(SAMPLES / name)
    parser = next(p for p in list_parsers() if p.sniff(read_head(source)))
    return parser.parse(source, ParseOptions())


def rows(of: Parsed, table: str = "collectives") -> list[Row]:
    return of.tables[table].to_pylist()


def values(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[n] for n in names)


def readings(of: Parsed) -> Counter[tuple[str | None, str]]:
    """Return how many lines of each format were read, skipped or unknown."""
    return Counter({(r["source"], r["reading"]): r["lines"] for r in rows(of, "log_lines")})
