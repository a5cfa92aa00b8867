"""Payloads of NCCL's calls: fields at their offsets, by schema, and the same as JSON."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from htk.base.columns.arrow import read_numbers
from htk.base.core.parser import Source
from htk.parsers.common.log_records import Issues
from htk.parsers.common.nccl_ranges import FACTS
from htk.parsers.common.sqlite_file import open_database
from htk.parsers.nsight.payloads import read_payloads
from htk.parsers.nsight.report import NsightReport
from sample_traces.nsight_export import Export, Process

FIELDS = (  # of schema 7 of domain 2: name, NVTX's number of the type, offset
    ("NCCL communicator ID", 18, 0),
    ("message SIZE [bytes]", 22, 8),
    ("Root", 5, 16),
    ("Peer rank", 7, 24),
    ("Rank", 6, 32),
    ("no. of ranks", 99, 36),  # of no type that a whole number comes in
    ("Reduction operation", 5, 36),
)
LAYOUT = "<QQi4xqI"


def read(
    path: Path, rows: list[dict[str, Any]], *, registered: bool = False
) -> list[tuple[Any, ...]]:
    """The facts of ranges, in the order of their begin; `registered`: JSON is named by a number."""
    export = Export(path)
    export.header()
    for name, kind, offset in FIELDS:
        export.add(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            domainId=2, schemaId=7, type=kind, name=name, offset=offset or None,
        )  # fmt: skip
    process = Process(export, 900, 0)
    for k, row in enumerate(rows):
        if "json" in row and registered:
            row = {"jsonTextId": export.string(row["json"])}
        elif "json" in row:
            row = {"jsonText": row["json"]}
        process.range("ncclSend", 10 * k, 10 * k + 5, **row)
    export.close()
    source = Source(str(path), lambda: path.open("rb"))
    with open_database(source, Issues(), None) as database:
        report = NsightReport.from_database(database, Issues())
    spans = report.spans["nvtx"]
    assert (read_numbers(spans.table["start"]) == [10 * k for k in range(len(rows))]).all()
    columns = read_payloads(report, spans)
    return list(zip(*(columns[name].to_pylist() for name in FACTS), strict=True))


def blob(*values: int, schema: int = 7, domain: int = 2, size: int | None = None) -> dict[str, Any]:
    data = struct.pack(LAYOUT, *values)
    whole = 32 + len(data) if size is None else size
    return {"binaryData": struct.pack("<IIIIQQ", domain, 0, schema, 0, len(data), whole) + data}


NOTHING = (None,) * len(FACTS)


def test_fields_lie_at_their_offsets(tmp_path: Path) -> None:
    """FACTS: bytes, communicator, peer, root, ranks of the group, own rank."""
    assert FACTS == ("size_bytes", "comm", "peer", "root", "group_size", "comm_rank")
    largest = (1 << 64) - 1
    found = read(
        tmp_path / "t.sqlite",
        [
            blob(largest, 64, 3, 5, 9),
            blob(1, 1 << 62, -1, -2, 0),  # no such size, no root, no peer
            blob(2, (1 << 62) - 1, 0, 0, (1 << 32) - 1),
            {},
        ],
    )
    assert found == [
        (64, largest, 5, 3, None, 9),
        (None, 1, None, None, None, 0),
        ((1 << 62) - 1, 2, 0, 0, None, (1 << 32) - 1),
        NOTHING,
    ]


def test_payloads_of_other_schemas_and_lengths_tell_nothing(tmp_path: Path) -> None:
    short = blob(5, 64, 3, 5, 9)["binaryData"][: 32 + 16]
    cut = struct.pack("<IIIIQQ", 2, 0, 7, 0, 16, 48) + short[32:]  # ends before the root
    found = read(
        tmp_path / "t.sqlite",
        [
            blob(5, 64, 3, 5, 9, schema=8),
            blob(5, 64, 3, 5, 9, domain=1),
            blob(5, 64, 3, 5, 9, size=67),
            {"binaryData": cut},
            {"binaryData": cut[:32]},
        ],
    )
    assert found == [NOTHING, NOTHING, NOTHING, (64, 5, None, None, None, None), NOTHING]


@pytest.mark.parametrize("registered", [True, False])
def test_payloads_as_json(tmp_path: Path, registered: bool) -> None:
    """Numbers may be written as texts; what is none, negative or beyond 64 bits is not known."""
    written: list[Any] = [
        {"NCCL communicator ID": (1 << 64) - 1, "Message size [bytes]": "12", "Rank": 0},
        {"NCCL communicator ID": 1 << 64, "No. of ranks": 8, "Root": -1, "Peer rank": True},
        {"Root": 2, "Peer rank": "x", "Rank": 1.0, "message size [bytes]": "9" * 20},
        [1],
    ]
    texts = [*map(json.dumps, written), '{"Root": 1']
    found = read(tmp_path / "t.sqlite", [{"json": text} for text in texts], registered=registered)
    assert found == [
        (12, (1 << 64) - 1, None, None, None, 0),
        (None, None, None, None, 8, None),
        (None, None, None, 2, None, None),
        NOTHING,
        NOTHING,
    ]
