"""Copies of Kineto files with the critical path drawn in, for any viewer of such traces.

The file itself is not touched: its bytes are copied, and the pieces of the path go in front of its
events as tracks of their own, with arrows from piece to piece.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from gzip import GzipFile
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.answers.export.microseconds import as_microseconds
from htk.answers.export.rewrite import quickly_packed
from htk.base.columns.arrow import codes_of, match_texts, read_lengths, read_numbers
from htk.base.errors import TraceError
from htk.base.io.decompress import open_stream
from htk.base.io.sources import resolve_inputs
from htk.base.schema import STRING
from htk.quantities.graph.fidelity import draw_path
from htk.traces.trace.trace import Trace

PROCESS = "critical path"
_TRACKS = {"kernels": "GPU", "launches": "host"}
_BETWEEN = "between events"
_CATEGORY = f', "cat": {json.dumps("critical_path")}, "ph": '
_FIRST = {"sort_index": -1}
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|\A(?:\xef\xbb\xbf)?\s*\[')
_HEADER_BYTES = 64 << 20  # what stands before the events: devices and groups, a few MB at most
_BLOCK = 1 << 20


def write_overlays(trace: Trace, folder: Path, step: int | None = None) -> dict[Path, int]:
    """Write the overlaid copy of each file that the path runs through; says how many pieces."""
    path = draw_path(trace.tables, step).pieces
    written: dict[Path, int] = {}
    files = trace.tables["ranks"].select(["rank", "cycle", "file", "base_time_ns"]).to_pylist()
    for whose in files:
        pieces = _select_rank(path, whose["rank"], whose["cycle"])
        if pieces.num_rows:
            target = folder / f"critical_path_{Path(whose['file']).name}"
            added = draw_path_slices(pieces, trace, whose["base_time_ns"] or 0)
            copy_with(whose["file"], target, added)
            written[target] = pieces.num_rows
    return written


def _select_rank(path: pa.Table, rank: int | None, cycle: int) -> pa.Table:
    if rank is None:
        return path.filter(pc.is_null(path["rank"]))
    return path.filter(pc.and_(pc.equal(path["rank"], rank), pc.equal(path["cycle"], cycle)))


def draw_path_slices(
    path: pa.Table, trace: Trace, base_ns: int, process: str | int = PROCESS
) -> list[str]:
    """Return a slice for each piece that takes time, and an arrow to it from the one before."""
    order = {"ph": "M", "name": "process_sort_index", "pid": process, "args": _FIRST}
    lengths = read_lengths(path)
    pieces = np.flatnonzero(lengths)
    path = path.take(pa.array(pieces))
    lengths = lengths[pieces]
    starts = as_microseconds(read_numbers(path["start_ns"]) - base_ns)
    inside = path["inside"].combine_chunks()
    track = pc.if_else(inside, _quote_texts(path["table"], _TRACKS), json.dumps(_BETWEEN))
    where = _join_texts(f', "pid": {json.dumps(process)}, "tid": ', track, "}")
    kinds = _quote_texts(path["kind"])
    slices = _join_texts(
        *('{"ts": ', starts, ', "dur": ', as_microseconds(lengths), _CATEGORY, '"X", "name": '),
        *(pc.if_else(inside, _name_pieces(path, trace), kinds), ', "args": {"kind": ', kinds),
        *(
            ', "path_ns": ',
            _encode_plain(path["path_ns"]),
            ', "observed": ',
            _encode_plain(path["observed"]),
        ),
        *(', "event": ', _encode_plain(path["event"]), "}", where),
    )
    arrow = (f', "name": {json.dumps(PROCESS)}, "id": ', pa.array(pieces[1:]).cast(STRING))
    begin = _join_texts('{"ts": ', starts[:-1], _CATEGORY, '"s"', *arrow, where[:-1])
    end = _join_texts('{"ts": ', starts[1:], _CATEGORY, '"f", "bp": "e"', *arrow, where[1:])
    events = slices.to_pylist()
    arrows = zip(events[1:], begin.to_pylist(), end.to_pylist(), strict=True)
    return [json.dumps(order), *events[:1], *chain.from_iterable(arrows)]


def _join_texts(*parts: str | pa.Array) -> pa.Array:
    """Return texts put together, row by row."""
    return pc.binary_join_element_wise(*parts, "")


def _encode_plain(column: pa.ChunkedArray) -> pa.Array:
    """Return numbers or truth values as JSON."""
    return column.combine_chunks().cast(STRING).fill_null("null")


def _quote_texts(column: pa.ChunkedArray, to: Mapping[str, str] | None = None) -> pa.Array:
    """Return texts, or what they stand for, as JSON."""
    codes, dictionary = codes_of(column)
    texts = [json.dumps(text if to is None else to[text]) for text in dictionary.to_pylist()]
    return pa.array([*texts, "null"]).take(pa.array(codes % (len(texts) + 1)))


def _name_pieces(path: pa.Table, trace: Trace) -> pa.Array:
    """Return what the event of each piece is called, as JSON."""
    rows = read_numbers(path["row"])
    names = pa.array(["null"] * len(rows))
    for table in _TRACKS:
        of_table = match_texts(path["table"], table.__eq__)
        recorded = trace.tables[table]["name"].take(pa.array(rows[of_table]))
        names = pc.replace_with_mask(names, pa.array(of_table), _quote_texts(recorded))
    return names


def copy_with(file: str, target: Path, added: list[str]) -> None:
    """The file's bytes, with these events first among its own; packed if its name says so."""
    (source,) = resolve_inputs(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open() as stored, open_stream(stored) as stream, _create_file(target) as out:
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


@contextmanager
def _create_file(target: Path) -> Iterator[BinaryIO | GzipFile]:
    with target.open("wb") as raw:
        if target.suffix == ".gz":
            with quickly_packed(raw) as packed:
                yield packed
        else:
            yield raw
