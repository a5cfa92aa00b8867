"""Files opened without the cache, and their rows."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

Rows = list[dict[str, Any]]


@lru_cache
def kept(path: Path) -> Trace:
    return opened(path)


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


def rows(trace: Trace, table: str, **wanted: Any) -> Rows:
    return [r for r in trace.tables[table].to_pylist() if all(r[k] == v for k, v in wanted.items())]
