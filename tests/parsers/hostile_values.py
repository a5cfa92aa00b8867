"""Values that no profiler writes, in any field of a file, and what becomes of the file."""

import io
from collections.abc import Iterator
from typing import Any

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.errors import TraceError

HUGE = 10**4000  # JSON reads it; Python prints up to 4,300 digits


def read(parser: Any, data: bytes, name: str = "dump") -> Parsed:
    parsed = parser.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())
    assert isinstance(parsed, Parsed)
    return parsed


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


WRONG: list[Any] = [None, True, 0, -1, 2**63 - 1, 2**63, -(2**63), 2**70, HUGE, 1.5, float("nan")]
WRONG += [float("inf"), 1e300, "", "x", "9" * 30, "\x00", [], [[]], [None], [1], ["x"], {}]
WRONG += [{"x": 1}, {"x": {"y": []}}, [[2**62] * 9], deep(400), "1" * 5000]


def variants(value: Any, wrong: Any) -> Iterator[Any]:
    """The value with something else in the place of each of its parts, one at a time."""
    yield wrong
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value[:3]))
    for key, inner in items:
        for other in variants(inner, wrong):
            copy = value.copy()
            copy[key] = other
            yield copy


def dump() -> dict[str, Any]:
    entry = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:recv 0<-1",
        "time_created_ns": 5,
        "time_discovered_started_ns": 6,
        "time_discovered_completed_ns": 7,
        "duration_ms": 0.5,
        "input_sizes": [[2, 3]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[2, 3]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled",
        "is_p2p": True,
        "retired": False,
        "frames": [{"name": "f", "filename": "a.py", "line": 3}],
    }
    ranks = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    state = {"last_enqueued_collective": 1, "last_started_collective": 1}
    return {
        "version": "2.10",
        "comm_lib_version": "2.21.5",
        "pg_config": {"0": ranks},
        "pg_status": {"0": state},
        "nccl_comm_state": {"c": {"rank": 0}},
        "entries": [entry, entry | {"record_id": 1, "profiling_name": "nccl:all_reduce"}],
    }


def outcome(parser: Any, data: bytes) -> str:
    """Read a file: its tables, or one line of htk's own."""
    try:
        for table in read(parser, data).tables.values():
            table.validate(full=True)
    except TraceError as error:
        assert "\n" not in str(error)
        return "failed"
    return "read"
