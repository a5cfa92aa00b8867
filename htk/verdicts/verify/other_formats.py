"""GPU activities of formats other than the profiler's, added up a second time.

Apart from the parsers on purpose: no table, no column and no reader is shared with them.
"""

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from htk.base.core.humanize import format_bytes
from htk.base.core.parser import Source
from htk.base.io.decompress import open_stream
from htk.base.mappings import Fields
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.protobuf import read_fields
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import NotApplicable, Tally
from htk.verdicts.verify.tpu_cores import sum_answer, sum_profile

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
    return [Check("other formats", what, _check_activities)]


def _check_activities(subject: Subject, tally: Tally) -> None:
    """Compare the number and time of the kernels, copies and sets of each file."""
    if subject.quick:
        raise NotApplicable("--quick leaves out the second reading")
    readers: dict[str, Callable[[bytes], Totals]] = {
        "nsight": _of_nsight,
        "rocpd": _of_rocpd,
        "rocprof_json": _of_rocprof,
        "xplane": _of_xplane,
        "tpu": _of_tpus,
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
        content = _read_bytes(source, subject.largest_bytes)
        is_of_tpus = name == "xplane" and _TPU in content
        expected = readers["tpu" if is_of_tpus else name](content)
        sum_rows = sum_answer if is_of_tpus else _sum_answer
        answered = sum_rows(_rows_of(subject, ranks))
        if _ANY in expected:
            answered = {_ANY: tuple(map(sum, zip(*answered.values(), strict=True)))}  # type: ignore[dict-item]
        for kind in sorted({*expected, *answered}):
            for what, k in (("count", 0), ("time", 1)):
                totals = (side.get(kind, (0, 0))[k] for side in (answered, expected))
                tally.equal(f"{Path(file).name}, {kind}: {what}", *totals)


def _rows_of(subject: Subject, ranks: set[int | None]) -> list[Fields]:
    columns = ("rank", "activity", "device", "stream", "start_ns", "end_ns")
    rows = subject.trace.tables["kernels"].select(columns).to_pylist()
    return [row for row in rows if row["rank"] in ranks]


def _sum_answer(rows: list[Fields]) -> Totals:
    return _sum_spans((row["activity"], row["start_ns"], row["end_ns"]) for row in rows)


def _sum_spans(spans: Iterator[tuple[str, int, int]]) -> Totals:
    totals: Totals = {}
    for kind, start, end in spans:
        count, time = totals.get(kind, (0, 0))
        totals[kind] = count + 1, time + end - start
    return totals


def _of_nsight(data: bytes) -> Totals:
    return _of_tables(data, _NSIGHT.get)


def _of_rocpd(data: bytes) -> Totals:
    def find_kind(table: str) -> str | None:
        named = _ROCPD.fullmatch(table)
        return _ROCPROF[named[1]] if named else None

    return _of_tables(data, find_kind)


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
        return _sum_spans(_list_dispatches(processes))
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise NotApplicable(f"the JSON cannot be added up: {error!r}"[:200]) from None


def _list_dispatches(processes: list[Fields]) -> Iterator[tuple[str, int, int]]:
    for process in processes:
        for list_name, kind in _ROCPROF.items():
            for record in process["buffer_records"].get(list_name) or ():
                yield kind, record["start_timestamp"], record["end_timestamp"]


def _of_xplane(data: bytes) -> Totals:
    """Sum the events of the streams of GPUs; which of them are copies their names tell, so that all
    are one kind here."""
    return _of_profile(data, lambda data: _sum_spans(_list_streamed(data)))


def _of_tpus(data: bytes) -> Totals:
    return _of_profile(data, sum_profile)


def _of_profile(data: bytes, read: Callable[[bytes], Totals]) -> Totals:
    try:
        return read(data)
    except (IndexError, TypeError, ValueError) as error:
        raise NotApplicable(f"the profile cannot be added up: {error!r}"[:200]) from None


def _list_streamed(data: bytes) -> Iterator[tuple[str, int, int]]:
    for plane in read_fields(data).get(_PLANES, []):
        members = read_fields(plane)
        if not bytes(members.get(_NAME, [b""])[0]).startswith(_DEVICE):
            continue
        for line in map(read_fields, members.get(_LINES, [])):
            if not bytes(line.get(_NAME, [b""])[0]).startswith(_STREAM):
                continue
            began = line.get(_BEGAN, [0])[0]
            for event in map(read_fields, line.get(_EVENTS, [])):
                offset = event.get(_OFFSET, [0])[0]
                lasted = event.get(_DURATION, [0])[0]
                yield _ANY, began + offset // 1000, began + (offset + lasted) // 1000


def _read_bytes(source: Source, largest: int) -> bytes:
    data = bytearray()
    with source.open() as file, open_stream(file) as stream:
        while chunk := stream.read(_CHUNK):
            data += chunk
            if len(data) > largest:
                most = format_bytes(largest)
                raise NotApplicable(f"{source.file_name} holds more than {most} (--largest)")
    return bytes(data)
