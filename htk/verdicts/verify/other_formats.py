"""GPU activities of formats other than the profiler's, added up a second time.

Apart from the parsers on purpose: no table, no column and no reader is shared with them.
"""

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from htk.base.core.humanize import format_bytes
from htk.base.core.parser import Source
from htk.base.io.decompress import open_stream
from htk.base.mappings import Fields
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import NotApplicable, Tally

_ANY = "activity"
Totals = dict[str, tuple[int, int]]  # kernel, copy, set: how many, and their time in ns

_CHUNK = 1 << 20
_STEPS = 100_000_000  # of SQLite's machine, at most; some seconds
_TABLES_OF_A_DATABASE = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
_NSIGHT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "kernel",
}
_ROCPD = re.compile(r"rocpd_(kernel_dispatch|memory_copy)(_\w+)?")
_DEVICE = b"/device:GPU:"
_TPU = b"/device:TPU:"
_STREAM = b"Stream #"
_PLANES, _NAME, _LINES, _BEGAN, _EVENTS = 1, 2, 3, 3, 4  # fields of XSpace, XPlane, XLine
_OFFSET, _DURATION = 2, 3  # of XEvent, in ps
_ROCPROF = {"kernel_dispatch": "kernel", "memory_copy": "copy"}


def checks() -> list[Check]:
    what = "GPU activities of Nsight, rocprof, rocpd and XLA files: plain SQL, JSON, protobuf"
    return [Check("other formats", what, _activities)]


def _activities(subject: Subject, tally: Tally) -> None:
    """Compare the number and time of the kernels, copies and sets of each file."""
    if subject.quick:
        raise NotApplicable("--quick leaves out the second reading")
    readers: dict[str, Callable[[bytes], Totals]] = {
        "nsight": _of_nsight,
        "rocpd": _of_rocpd,
        "rocprof_json": _of_rocprof,
        "xplane": _of_xplane,
    }
    formats = {row["file"]: row["format"] for row in subject.files if row["format"] in readers}
    if not formats:
        raise NotApplicable("no file of Nsight Systems, rocprofv3, rocpd or XLA")
    for file, name in formats.items():
        source = subject.sources.get(file)
        ranks = {row["rank"] for row in subject.files if row["file"] == file}
        if source is None or any(r["rank"] in ranks for r in subject.files if r["file"] != file):
            tally.left_out.append(f"{file}: its ranks are not its own, or it cannot be read twice")
            continue
        content = _bytes(source, subject.largest_bytes)
        if name == "xplane" and _TPU in content:
            tally.left_out.append(f"{file}: operators of TPUs nest, so that they do not add up")
            continue
        expected = readers[name](content)
        answered = _answered(subject, ranks)
        if _ANY in expected:
            answered = {_ANY: tuple(map(sum, zip(*answered.values(), strict=True)))}  # type: ignore[dict-item]
        for kind in sorted({*expected, *answered}):
            for what, k in (("count", 0), ("time", 1)):
                totals = (side.get(kind, (0, 0))[k] for side in (answered, expected))
                tally.equal(f"{Path(file).name}, {kind}: {what}", *totals)


def _answered(subject: Subject, ranks: set[int | None]) -> Totals:
    columns = ("rank", "activity", "start_ns", "end_ns")
    rows = subject.trace.tables["kernels"].select(columns).to_pylist()
    return _summed(
        (row["activity"], row["start_ns"], row["end_ns"]) for row in rows if row["rank"] in ranks
    )


def _summed(spans: Iterator[tuple[str, int, int]]) -> Totals:
    totals: Totals = {}
    for kind, start, end in spans:
        count, time = totals.get(kind, (0, 0))
        totals[kind] = count + 1, time + end - start
    return totals


def _of_nsight(data: bytes) -> Totals:
    return _of_tables(data, _NSIGHT.get)


def _of_rocpd(data: bytes) -> Totals:
    def kind(table: str) -> str | None:
        named = _ROCPD.fullmatch(table)
        return _ROCPROF[named[1]] if named else None

    return _of_tables(data, kind)


def _of_tables(data: bytes, kind: Callable[[str], str | None]) -> Totals:
    """Sum the spans of the tables of a database whose names tell what they hold."""
    totals: Totals = {}
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        uri = f"{Path(file.name).as_uri()}?mode=ro&immutable=1"
        database = sqlite3.connect(uri, uri=True)
        try:
            database.set_progress_handler(lambda: 1, _STEPS)
            database.execute("PRAGMA trusted_schema = OFF")
            for table, definition in database.execute(_TABLES_OF_A_DATABASE).fetchall():
                what = kind(table)
                if what is None or definition.upper().startswith("CREATE VIRTUAL"):
                    continue
                query = f'SELECT count(*), coalesce(sum("end" - "start"), 0) FROM "{table}"'
                rows, time = database.execute(query).fetchone()
                count, before = totals.get(what, (0, 0))
                totals[what] = count + int(rows), before + int(time)
        except sqlite3.Error as error:
            raise NotApplicable(f"the database cannot be added up: {error}") from None
        finally:
            database.close()
    return totals


def _of_rocprof(data: bytes) -> Totals:
    """Sum the spans of the JSON that rocprofv3 writes, process by process."""
    try:
        processes = json.loads(data)["rocprofiler-sdk-tool"]
        return _summed(_dispatched(processes))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise NotApplicable(f"the JSON cannot be added up: {error!r}"[:200]) from None


def _dispatched(processes: list[Fields]) -> Iterator[tuple[str, int, int]]:
    for process in processes:
        for list_name, kind in _ROCPROF.items():
            for record in process["buffer_records"].get(list_name) or ():
                yield kind, record["start_timestamp"], record["end_timestamp"]


def _of_xplane(data: bytes) -> Totals:
    """Sum the events of the streams of GPUs; which of them are copies their names tell, so that all
    are one kind here."""
    try:
        return _summed(_streamed(data))
    except (IndexError, TypeError, ValueError) as error:
        raise NotApplicable(f"the profile cannot be added up: {error!r}"[:200]) from None


def _streamed(data: bytes) -> Iterator[tuple[str, int, int]]:
    for plane in _fields(data).get(_PLANES, []):
        members = _fields(plane)
        if not bytes(members.get(_NAME, [b""])[0]).startswith(_DEVICE):
            continue
        for line in map(_fields, members.get(_LINES, [])):
            if not bytes(line.get(_NAME, [b""])[0]).startswith(_STREAM):
                continue
            began = line.get(_BEGAN, [0])[0]
            for event in map(_fields, line.get(_EVENTS, [])):
                offset, lasted = (event.get(field, [0])[0] for field in (_OFFSET, _DURATION))
                yield _ANY, began + offset // 1000, began + (offset + lasted) // 1000


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a protobuf message by number: whole numbers, or bytes."""
    fields: dict[int, list[Any]] = {}
    position = 0
    value: Any
    while position < len(message):
        key, position = _varint(message, position)
        wire = key & 7
        if wire == 0:
            value, position = _varint(message, position)
        elif wire == 2:
            length, position = _varint(message, position)
            value = message[position : position + length]
            position += length
        elif wire in (1, 5):
            value = None
            position += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _bytes(source: Source, largest: int) -> bytes:
    data = bytearray()
    with source.open() as file, open_stream(file) as stream:
        while chunk := stream.read(_CHUNK):
            data += chunk
            if len(data) > largest:
                most = format_bytes(largest)
                raise NotApplicable(f"{source.file_name} holds more than {most} (--largest)")
    return bytes(data)
