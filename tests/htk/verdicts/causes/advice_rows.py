"""Tables that recommendations read, and what must hold of the rows they return."""

from typing import Any

import pyarrow as pa


def rows_of(schema: pa.Schema, *rows: dict[str, Any]) -> pa.Table:
    plain = pa.schema([
        (f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in schema
    ])  # fmt: skip
    return pa.Table.from_pylist(list(rows), plain).cast(schema)


def assert_disjoint(rows: list[dict[str, Any]], window: int) -> None:
    """Together all gains are no more than a rank recorded, less one ns of rounding each."""
    gains = [r["gain_ns"] for r in rows if r["gain_ns"] is not None and r["overlaps"] is None]
    assert all(gain > 0 for gain in gains) and sum(gains) <= window
