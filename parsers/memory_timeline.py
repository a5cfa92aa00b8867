"""PyTorch's memory timeline: `export_memory_timeline("….raw.json.gz")` or `("….json")`.

Raw: `[time_ns, action, bytes, category]` for each event (action 1: there before, 2: allocated,
3: changed category, 4: freed; a time of -1: before the recording). Plain: `[times_µs, [bytes of
each category, …]]`. Written since torch 2.0. The HTML form holds a picture, no numbers.

Neither names its device; addresses are not written.
"""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_table,
    constant_text,
    decode_texts,
    drop_fields,
)
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.schema import INT64, TABLES
from htk.base.schema.profile import ALLOCATION
from htk.parsers.common.log_records import Issues, read_json

NAME = "memory_timeline"

_CATEGORIES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd_detail",
    "unknown",
)
_RAW = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]")
_PLAIN = re.compile(rb"\s*\[\s*\[\s*-?\d{1,17}\s*,\s*\d{10,17}\s*[,\]]")


def sniff(head: Head) -> bool:
    return bool(_RAW.match(head.data) or _PLAIN.match(head.data))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    data = read_json(source, issues, options.progress)
    read = _read_raw if _RAW.match(data) else _read_totals
    try:
        times, sizes, categories = read(_read_rows(data, issues), issues)
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError):
        raise MalformedTrace(f"{source.name}: truncated or damaged memory timeline") from None
    order = order_by(times)
    times = times[order]
    sizes = sizes[order]
    categories = categories[order]
    length = len(times)
    columns = {
        "event": build_numbers(np.arange(length), INT64),
        "name": constant_text(ALLOCATION, length),
        "time_ns": build_numbers(times, INT64),
        "size_bytes": build_numbers(sizes, INT64),
        "allocated_bytes": build_numbers(np.cumsum(sizes), INT64),
        "category": decode_texts(categories, pa.array(_CATEGORIES)),
    }
    table = build_table(drop_fields(TABLES["memory"], "rank", "cycle"), columns, length)
    facts: dict[str, object] = {"events": length, "recorded": "profile_memory"}
    if length:
        facts |= {"start_ns": int(times[0]), "end_ns": int(times[-1])}
    return Parsed({"memory": table, "parse_issues": issues.table()}, facts=facts)


def _read_rows(data: bytes, issues: Issues) -> Any:
    """Return the file's value; of a raw one that was cut the whole events."""
    try:
        return json.loads(data)
    except ValueError:
        end = data.rfind(b"]")
        if not _RAW.match(data) or end < 0:
            raise
        issues.add("truncated", "the file ends within an event", len(data))
        return json.loads(data[: end + 1] + b"]")


def _read_raw(rows: Any, issues: Issues) -> tuple[Ints, Ints, Ints]:
    complete = [r for r in rows if isinstance(r, list) and len(r) == 4 and _has_integers(r)]
    if len(complete) < len(rows):
        issues.add("broken_event", "not four integers", count=len(rows) - len(complete))
    columns = np.array(complete, np.int64).reshape(-1, 4)
    times, action, sizes, category = columns.T
    begun = times[times >= 0]
    times = np.where(times < 0, begun.min() if len(begun) else 0, times)
    sizes = np.where((action == 4) & (sizes > 0), -sizes, sizes)
    return times, sizes, _bound_categories(category)


def _read_totals(rows: Any, issues: Issues) -> tuple[Ints, Ints, Ints]:
    """Return what each category grew by, from its totals; the first column is no category."""
    times, totals = rows
    held = np.array(totals, np.int64).reshape(len(times), -1)[:, 1:]
    grown = np.diff(held, axis=0, prepend=0)
    row, category = np.nonzero(grown)
    when = np.array(times, np.int64) * 1000
    if when.ndim != 1:
        raise ValueError("times within lists")
    return when[row], grown[row, category], _bound_categories(category)


def _bound_categories(category: Ints) -> Ints:
    return np.where((category >= 0) & (category < len(_CATEGORIES)), category, 7)


def _has_integers(row: list[Any]) -> bool:
    return all(type(value) is int and abs(value) < 1 << 62 for value in row)
