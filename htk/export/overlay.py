"""Copies of Kineto files with the critical path drawn in, for any viewer of such traces.

The file itself is not touched: its bytes are copied, and the pieces of the path go in front of its
events as tracks of their own, with arrows from piece to piece.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.core.humanize import format_microseconds
from htk.errors import TraceError
from htk.graph.critical_path import path_events
from htk.io.decompress import open_stream
from htk.io.sources import resolve
from htk.trace.trace import Trace

PROCESS = "critical path"
_TRACKS = {"kernels": "GPU", "launches": "host"}
_BETWEEN = "between events"
_FIRST = {"sort_index": -1}
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|\A(?:\xef\xbb\xbf)?\s*\[')
_HEADER_BYTES = 64 << 20  # what stands before the events: devices and groups, a few MB at most
_BLOCK = 1 << 20


def write_overlays(trace: Trace, folder: Path, step: int | None = None) -> dict[Path, int]:
    """Write the overlaid copy of each file that the path runs through; says how many pieces."""
    path = path_events(trace.tables, step)
    written: dict[Path, int] = {}
    files = trace.tables["ranks"].select(["rank", "cycle", "file", "base_time_ns"]).to_pylist()
    for whose in files:
        pieces = _of(path, whose["rank"], whose["cycle"])
        if pieces.num_rows:
            target = folder / f"critical_path_{Path(whose['file']).name}"
            added = list(drawn(pieces, trace, whose["base_time_ns"] or 0))
            copy_with(whose["file"], target, added)
            written[target] = pieces.num_rows
    return written


def _of(path: pa.Table, rank: int | None, cycle: int) -> pa.Table:
    if rank is None:
        return path.filter(pc.is_null(path["rank"]))
    return path.filter(pc.and_(pc.equal(path["rank"], rank), pc.equal(path["cycle"], cycle)))


def drawn(
    path: pa.Table, trace: Trace, base_ns: int, process: str | int = PROCESS
) -> Iterator[str]:
    """A slice for each piece that takes time, and an arrow to it from the one before."""
    yield json.dumps({"ph": "M", "name": "process_sort_index", "pid": process, "args": _FIRST})
    names = {table: trace.tables[table]["name"] for table in _TRACKS}
    before = None
    for number, row in enumerate(path.to_pylist()):  # a path is a small part of the trace
        length = row["end_ns"] - row["start_ns"]
        if not length:
            continue
        start = row["start_ns"] - base_ns
        where: dict[str, Any] = {
            "pid": process,
            "tid": _TRACKS[row["table"]] if row["inside"] else _BETWEEN,
        }
        name = names[row["table"]][row["row"]].as_py() if row["inside"] else row["kind"]
        facts = {k: row[k] for k in ("kind", "path_ns", "observed", "event")}
        yield _event(start, length, ph="X", name=name, args=facts, **where)
        if before is not None:
            yield _event(before[0], ph="s", name=PROCESS, id=number, **before[1])
            yield _event(start, ph="f", bp="e", name=PROCESS, id=number, **where)
        before = start, where


def _event(start_ns: int, length_ns: int | None = None, **rest: Any) -> str:
    """Return an event as JSON. Its times, in microseconds, are written out: no float holds them."""
    times = f'"ts": {format_microseconds(start_ns)}, '
    if length_ns is not None:
        times += f'"dur": {format_microseconds(length_ns)}, '
    return "{" + times + json.dumps({"cat": "critical_path", **rest})[1:]


def copy_with(file: str, target: Path, added: list[str]) -> None:
    """The file's bytes, with these events first among its own; packed if its name says so."""
    (source,) = resolve(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open() as stored, open_stream(stored) as stream, _create(target) as out:
        head = stream.read(_BLOCK)
        while not (opening := _EVENTS.search(head)):
            more = stream.read(_BLOCK)
            if not more or len(head) > _HEADER_BYTES:
                raise TraceError(f"{file}: no traceEvents; only Kineto's files can be drawn into")
            head += more
        rest = head[opening.end() :] + stream.read(_BLOCK)
        out.write(head[: opening.end()] + ",\n".join(added).encode())
        if not rest.lstrip().startswith(b"]"):
            out.write(b",\n")
        out.write(rest)
        while more := stream.read(_BLOCK):
            out.write(more)


def _create(target: Path) -> IO[bytes]:
    if target.suffix == ".gz":
        return gzip.open(target, "wb", compresslevel=3)  # type: ignore[return-value]
    return target.open("wb")
