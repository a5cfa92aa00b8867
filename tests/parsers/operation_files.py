"""Files of operation-level rows, and the rows that a parser reads of them."""

import io
import json
from pathlib import Path
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source

SAMPLES = Path(__file__).parents[2] / "sample_traces"

ROW = {"rank": 3, "dp_rank": 1, "stage": 1, "step": 7, "type": "forward-compute"}


def parsed(parser: Any, data: bytes, name: str = "a file") -> Parsed:
    assert parser.sniff(Head(name, data[:65536], len(data) <= 65536))
    tables: Parsed = parser.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())
    return tables


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def rows(read: Parsed) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = read.tables["job_operations"].to_pylist()
    return listed
