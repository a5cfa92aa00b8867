"""Recordings of others that are told again as Kineto's JSON, so that arguments have one reader."""

from dataclasses import replace
from io import BytesIO

import msgspec
import pyarrow as pa

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.parsers import kineto
from htk.parsers.common.log_records import Issues


def parse_retold(text: bytes, source: Source, options: ParseOptions, issues: Issues) -> Parsed:
    """Return what Kineto's parser reads of a file's events, with what was lost in the file."""
    as_json = replace(source, open=lambda: BytesIO(text), size=len(text), path=None)
    parsed = kineto.parse(as_json, replace(options, progress=None))
    lost = pa.concat_tables([parsed.tables["parse_issues"], issues.table()])
    return replace(parsed, tables={**parsed.tables, "parse_issues": lost})


def to_stamp(time_ns: int) -> msgspec.Raw:
    """Return nanoseconds as Kineto's microseconds, digit by digit."""
    return msgspec.Raw(b"%d.%03d" % divmod(time_ns, 1000))
