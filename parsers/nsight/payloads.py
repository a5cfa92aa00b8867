"""Payloads of NCCL's NVTX ranges: communicator, bytes, peer, root, ranks.

A binary payload has a header of 32 bytes (domain, schema, size of the payload, size of all) and the
fields that the schema's entries list, each at its offset. With --include-json=true the export holds
them as JSON instead, under the entries' names.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.schema import INT64
from htk.parsers.common.nccl_ranges import FACTS
from htk.parsers.nsight.report import NsightReport, ReportRows

_HEADER = 32
_MOST_BYTES = 4096  # NCCL's payloads have some 60
_FIELDS = {  # what an entry is called, in small letters -> column
    "nccl communicator id": "comm",
    "message size [bytes]": "size_bytes",
    "peer rank": "peer",
    "root": "root",
    "no. of ranks": "group_size",
    "rank": "comm_rank",
}
# NVTX_PAYLOAD_ENTRY_TYPE_*: those that whole numbers come in.
_TYPES = {5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8", 10: "<u8"}
_TYPES |= {15: "<i4", 16: "<u4", 17: "<i8", 18: "<u8", 22: "<u8"}

_Columns = dict[str, NDArray[Any]]


def read_payloads(report: NsightReport, rows: ReportRows) -> dict[str, pa.Array]:
    """Return a column for each fact, null where the export does not tell."""
    values: _Columns = {name: np.zeros(len(rows), np.uint64) for name in FACTS}
    has_value = {name: np.zeros(len(rows), bool) for name in FACTS}
    if len(rows):
        _read_binary(report, rows, values, has_value)
        _read_json(report, rows, values, has_value)
    columns = {}
    for name in FACTS:
        if name == "comm":
            columns[name] = pa.array(values[name], pa.uint64(), mask=~has_value[name])
            continue
        has_value[name] &= values[name] < 1 << 62
        signed = np.where(has_value[name], values[name], 0).astype(np.int64)
        columns[name] = pa.array(signed, INT64, mask=~has_value[name])
    return columns


def _read_binary(
    report: NsightReport, rows: ReportRows, values: _Columns, has_value: _Columns
) -> None:
    """Payloads of one length at a time, all at once."""
    blobs = rows.table["binaryData"].combine_chunks()
    lengths = read_numbers(pa.compute.binary_length(blobs), 0)
    schemas = _read_schemas(report)
    for length in np.unique(lengths[(lengths > _HEADER) & (lengths <= _MOST_BYTES)]).tolist():
        chosen = np.flatnonzero(lengths == length)
        data = np.frombuffer(b"".join(blobs.take(pa.array(chosen)).to_pylist()), np.uint8)
        data = data.reshape(-1, length)
        ids = _read_field(data, 8, "<u4"), _read_field(data, 0, "<u4")
        fits = _read_field(data, 24, "<u8") == length
        for (schema, domain), fields in schemas.items():
            of = np.flatnonzero((ids[0] == schema) & (ids[1] == domain) & fits)
            for column, (offset, kind) in fields.items() if len(of) else ():
                if _HEADER + offset + np.dtype(kind).itemsize <= length:
                    read = _read_field(data[of], _HEADER + offset, kind)
                    values[column][chosen[of]] = np.maximum(read, 0).astype(np.uint64)
                    has_value[column][chosen[of]] = read >= 0


def _read_field(data: NDArray[np.uint8], offset: int, kind: str) -> NDArray[Any]:
    size = np.dtype(kind).itemsize
    return np.ascontiguousarray(data[:, offset : offset + size]).view(kind).ravel()


def _read_schemas(report: NsightReport) -> Mapping[tuple[int, int], dict[str, tuple[int, str]]]:
    """Offset and type of each field that is read, by schema and domain."""
    schemas: dict[tuple[int, int], dict[str, tuple[int, str]]] = {}
    for entry in report.payloads.to_pylist():  # some dozen a process
        column = _FIELDS.get((entry["name"] or "").lower())
        kind = _TYPES.get(entry["type"] or 0)
        offset = entry["offset"] or 0
        if column and kind and 0 <= offset < _MOST_BYTES:
            key = (entry["schemaId"] or 0, entry["domainId"] or 0)
            schemas.setdefault(key, {}).setdefault(column, (offset, kind))
    return schemas


def _read_json(
    report: NsightReport, rows: ReportRows, values: _Columns, has_value: _Columns
) -> None:
    """Payloads as JSON: each distinct text is read once."""
    codes = report.strings.codes(rows.table["jsonTextId"])
    named = report.strings.texts(codes)
    for column in (rows.table["jsonText"].combine_chunks().dictionary_encode(), named):
        places, distinct = codes_of(column)
        for code, written in enumerate(distinct.to_pylist()):
            facts = _parse_facts(written)
            of = np.flatnonzero(places == code) if facts else ()
            for name, value in facts.items():
                values[name][of] = value
                has_value[name][of] = True


def _parse_facts(written: str) -> dict[str, int]:
    try:
        payload = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    facts = {}
    for name, value in payload.items() if isinstance(payload, dict) else ():
        column = _FIELDS.get(name.lower())
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if column and type(value) is int and 0 <= value < 1 << 64:
            facts[column] = value
    return facts
