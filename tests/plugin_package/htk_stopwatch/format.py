"""Stopwatch logs: the word STOPWATCH, then a name and nanoseconds on each line."""

import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_table, build_texts, drop_fields
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.schema import TABLES

NAME = "stopwatch"


def sniff(head: Head) -> bool:
    return head.data.startswith(b"STOPWATCH")


def parse(source: Source, options: ParseOptions) -> Parsed:
    with source.open() as file:
        rows = [line.split() for line in file.read().decode().splitlines()[1:]]
    ends = build_numbers([int(ns) for _, ns in rows], pa.int64())
    columns = {"name": build_texts([name for name, _ in rows]), "end_ns": ends}
    schema = drop_fields(TABLES["cpu_ops"], "rank", "cycle")
    return Parsed({"cpu_ops": build_table(schema, columns, len(rows))}, rank=0)
