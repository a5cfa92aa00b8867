"""The rows of a report, table by table, on the absolute clock and told apart by process."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, decode_texts, mark_valid, read_numbers
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.schema import INT64, STRING
from htk.parsers.common.log_records import Issues
from htk.parsers.common.span_tables import mark_timed
from htk.parsers.common.sqlite_file import Database

_B = pa.binary()
_NO_PROCESS = -1


def _map_to_int64(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, INT64)


_SPAN = _map_to_int64("start", "end")
_PLACE = _SPAN | _map_to_int64("deviceId", "contextId", "streamId", "correlationId", "globalPid")
_GRAPH = _map_to_int64("graphNodeId", "graphId")

# Table of the export, and the columns of it that are read: those that a version lacks are null.
TABLES: Mapping[str, tuple[str, Mapping[str, pa.DataType]]] = {
    "kernels": (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        _PLACE
        | _GRAPH
        | _map_to_int64("demangledName", "shortName", "mangledName", "registersPerThread")
        | _map_to_int64("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        | _map_to_int64("staticSharedMemory", "dynamicSharedMemory"),
    ),
    "copies": (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        _PLACE | _GRAPH | _map_to_int64("bytes", "copyKind", "srcKind", "dstKind"),
    ),
    "sets": ("CUPTI_ACTIVITY_KIND_MEMSET", _PLACE | _GRAPH | _map_to_int64("bytes", "memKind")),
    "graphs": ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _PLACE | _map_to_int64("graphId", "graphExecId")),
    "runtime": (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        _SPAN | _map_to_int64("globalTid", "correlationId", "nameId"),
    ),
    "system": ("OSRT_API", _SPAN | _map_to_int64("globalTid", "nameId")),
    "syncs": (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        _PLACE | _map_to_int64("syncType", "eventId", "eventSyncId"),
    ),
    "nvtx": (
        "NVTX_EVENTS",
        _SPAN
        | _map_to_int64("eventType", "globalTid", "textId", "domainId", "jsonTextId")
        | {"text": STRING, "jsonText": STRING, "binaryData": _B},
    ),
    "profiler": ("PROFILER_OVERHEAD", _SPAN | _map_to_int64("globalTid", "overheadType")),
    "cuda": ("CUPTI_ACTIVITY_KIND_OVERHEAD", _SPAN | _map_to_int64("globalTid", "overheadType")),
}
_RANGES = (59, 60)  # pushed and popped, started and ended; the others are marks and names


@dataclass(frozen=True)
class Strings:
    """The texts that rows name by number."""

    ids: Ints  # ascending
    values: pa.Array

    @classmethod
    def from_database(cls, database: Database) -> "Strings":
        table = database.read("StringIds", {"id": INT64, "value": STRING})
        ids = read_numbers(table["id"], NONE)
        order = order_by(ids)
        values = table["value"].combine_chunks().take(pa.array(order))
        return cls(ids[order], values.fill_null(""))

    def codes(self, ids: pa.ChunkedArray) -> Ints:
        """Return the place of each text (-1: none)."""
        wanted = read_numbers(ids, NONE)
        if not len(self.ids):
            return fill_none(len(wanted))
        position = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        return np.where((self.ids[position] == wanted) & mark_valid(ids), position, -1)

    def texts(self, codes: Ints) -> pa.Array:
        return decode_texts(codes, self.values)


@dataclass(frozen=True)
class ReportRows:
    """Rows of one table: as exported, with process and absolute times."""

    table: pa.Table
    process: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def times(self) -> dict[str, pa.Array]:
        """Return start and end as columns of a table."""
        return {
            "start_ns": build_numbers(self.start, INT64),
            "end_ns": build_numbers(self.end, INT64),
        }

    def where(self, chosen: Ints) -> "ReportRows":
        table = self.table.take(pa.array(chosen))
        return ReportRows(table, self.process[chosen], self.start[chosen], self.end[chosen])


@dataclass(frozen=True)
class NsightReport:
    """Everything that is read from a report, or from one process of it."""

    spans: Mapping[str, ReportRows]
    strings: Strings
    labels: Mapping[str, Mapping[int, str]]  # enumerations of the export: number -> name
    payloads: pa.Table  # entries of payload schemas
    cuda_events: pa.Table
    base_ns: int
    truncated: bool

    @classmethod
    def from_database(cls, database: Database, issues: Issues) -> "NsightReport":
        base_ns = _base_ns(database)
        spans = {
            name: _read_rows(database, table, columns, base_ns, issues)
            for name, (table, columns) in TABLES.items()
        }
        enums = ("ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "ENUM_CUPTI_OVERHEAD_TYPE")
        entries = _map_to_int64("domainId", "schemaId", "type", "offset") | {"name": STRING}
        events = _map_to_int64("eventId", "eventSyncId", "streamId", "correlationId", "globalPid")
        return cls(
            _assign_work(spans),
            Strings.from_database(database),
            {enum: _read_labels(database, enum) for enum in enums},
            database.read("NVTX_PAYLOAD_SCHEMA_ENTRIES", entries),
            database.read("CUPTI_ACTIVITY_KIND_CUDA_EVENT", events),
            base_ns,
            issues.has("damaged_table"),
        )

    def of_process(self, process: int) -> "NsightReport":
        chosen = {
            name: rows.where(np.flatnonzero(rows.process == process))
            for name, rows in self.spans.items()
        }
        return replace(self, spans=chosen)

    def processes(self, *names: str) -> list[int]:
        owners = [self.spans[name].process for name in names]
        return [int(p) for p in np.unique(np.concatenate(owners)).tolist()]

    def pid(self, process: int) -> int:
        return process >> 24 & 0xFFFFFF

    def first_device(self, process: int) -> int:
        lowest = []
        for name in ("kernels", "copies", "sets", "graphs"):
            rows = self.spans[name]
            device = read_numbers(rows.table["deviceId"], NONE)[rows.process == process]
            lowest += [int(device.min())] if len(device) else []
        return min(lowest, default=-1)


def _read_rows(
    database: Database,
    table: str,
    columns: Mapping[str, pa.DataType],
    base_ns: int,
    issues: Issues,
) -> ReportRows:
    """Return rows that have usable times; an NVTX range that never ended ends with the rest."""
    read = database.read(table, columns)
    if "eventType" in columns:
        kind = read_numbers(read["eventType"])
        read = read.filter(pa.array(np.isin(kind, _RANGES)))
        read = _select_closed(read, issues)
    usable = mark_timed(read["start"], read["end"], table, issues)
    read = read.filter(pa.array(usable)) if not usable.all() else read
    owner = "globalPid" if "globalPid" in columns else "globalTid"
    process = read_numbers(read[owner], _NO_PROCESS)
    process = np.where(process >= 0, process & ~np.int64(0xFFFFFF), _NO_PROCESS)
    return ReportRows(
        read, process, read_numbers(read["start"]) + base_ns, read_numbers(read["end"]) + base_ns
    )


def _select_closed(ranges: pa.Table, issues: Issues) -> pa.Table:
    """Return ranges with an end: any open when the recording stopped last until the last event."""
    still_open = ~mark_valid(ranges["end"]) & mark_valid(ranges["start"])
    if not still_open.any():
        return ranges
    issues.add("open_range", "NVTX range without an end", count=int(still_open.sum()))
    start = read_numbers(ranges["start"])
    end = read_numbers(ranges["end"])
    last = max(int(end.max()), int(start.max()))
    position = ranges.schema.get_field_index("end")
    return ranges.set_column(position, "end", pa.array(np.where(still_open, last, end)))


def _assign_work(spans: dict[str, ReportRows]) -> dict[str, ReportRows]:
    """Assign GPU work of an export that names no process to the only one that called CUDA."""
    callers = np.unique(spans["runtime"].process)
    if len(callers) != 1:
        return spans
    only = callers[0]
    return {
        name: replace(rows, process=np.where(rows.process == _NO_PROCESS, only, rows.process))
        for name, rows in spans.items()
    }


def _base_ns(database: Database) -> int:
    """Return the instant from which the report's times count, in ns: the start of the session; 0 if
    the export already shifted them to UTC, or the start was not recorded."""
    shifted = database.read("META_DATA_EXPORT", {"name": STRING, "value": STRING})
    for name, value in zip(*(shifted[c].to_pylist() for c in ("name", "value")), strict=True):
        if name == "EXPORT_PARAM_TIME_NORMALIZE" and value == "true":
            return 0
    started = database.read("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": INT64})
    begun = [t for t in started["utcEpochNs"].to_pylist() if t is not None and 0 <= t < 1 << 61]
    return begun[0] if begun else 0


def _read_labels(database: Database, enum: str) -> dict[int, str]:
    read = database.read(enum, {"id": INT64, "name": STRING})
    pairs = zip(read["id"].to_pylist(), read["name"].to_pylist(), strict=True)
    return {number: name for number, name in pairs if number is not None and name}
