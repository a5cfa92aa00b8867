"""Kineto's events in Perfetto's protobuf: torch 2.15's, and what breaks in it."""

import gzip
from pathlib import Path

import pytest

import htk
from htk.base.errors import HtkError, MalformedTrace
from tests.parsers.opened_files import opened, rows

_ROUNDED_NS = 200  # torch keeps times as doubles


def test_torch_says_the_same_in_both_formats(shared: Path) -> None:
    folder = shared / "traces/torch215"
    packets = htk.open(folder / "pftrace", cache=False)
    text = htk.open(folder / "plain", cache=False)
    kernels = [
        [
            (row["name"], row["count"])
            for row in session.kernel_top(n=0).to_pylist()
            if not row["name"].startswith("Memcpy")  # torch writes their directions as text only
        ]
        for session in (packets, text)
    ]
    assert sorted(kernels[0]) == sorted(kernels[1]) != []
    calls = [rows(opened(folder / form), "cpu_ops") for form in ("pftrace", "plain")]
    by_id = {row["external_id"]: row for row in calls[0]}
    assert len(by_id) == len(calls[1]) == 1633
    for row in calls[1]:
        same = by_id[row["external_id"]]
        assert (same["name"], same["input_dims"]) == (row["name"], row["input_dims"])
        assert abs(same["end_ns"] - row["end_ns"]) <= _ROUNDED_NS


def test_a_cut_file_gives_what_came_before(shared: Path, tmp_path: Path) -> None:
    whole = gzip.decompress((shared / "traces/torch215/pftrace/rank0.pftrace.gz").read_bytes())
    (tmp_path / "cut.pftrace").write_bytes(whole[: len(whole) * 9 // 10])
    trace = opened(tmp_path / "cut.pftrace")
    kinds = {row["kind"] for row in rows(trace, "parse_issues")}
    assert "truncated" in kinds
    assert 0 < trace.tables["cpu_ops"].num_rows <= 1633


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _packet(*parts: bytes) -> bytes:
    return _bytes(1, b"".join((_number(10, 1), *parts)))


def _slice(time: int, kind: int, name: bytes = b"", category: bytes = b"cpu_op") -> bytes:
    told = _bytes(23, name) + _bytes(22, category) if name else b""
    return _packet(_number(8, time), _bytes(11, _number(9, kind) + _number(11, 3) + told))


_BEGINNING = (
    _packet(_number(13, 1))
    + _packet(_bytes(60, _number(1, 1) + _bytes(3, _number(1, 70) + _bytes(6, b"python"))))
    + _packet(_bytes(60, _number(1, 3) + _number(5, 1) + _bytes(4, _number(1, 70) + _number(2, 9))))
)


def test_ends_belong_to_what_began_last(tmp_path: Path) -> None:
    events = (
        _slice(1000, 1, b"aten::outer"),
        _slice(2000, 1, b"aten::inner"),
        _slice(3000, 2),
        _slice(9000, 2),
        _slice(9500, 2),  # of nothing
    )
    (tmp_path / "a.pftrace").write_bytes(_BEGINNING + b"".join(events))
    trace = opened(tmp_path / "a.pftrace")
    lengths = {row["name"]: row["end_ns"] - row["start_ns"] for row in rows(trace, "cpu_ops")}
    assert lengths == {"aten::outer": 8000, "aten::inner": 1000}
    assert {row["thread"] for row in rows(trace, "cpu_ops")} == {"9"}
    assert [row["kind"] for row in rows(trace, "parse_issues")] == ["no_duration"]


def test_all_begins_and_then_all_ends_are_in_one_order(tmp_path: Path) -> None:
    events = (
        _slice(1000, 1, b"aten::first"),
        _slice(2000, 1, b"aten::second"),
        _slice(9000, 2),
        _slice(3000, 2),
    )
    (tmp_path / "a.pftrace").write_bytes(_BEGINNING + b"".join(events))
    lengths = {
        row["name"]: row["end_ns"] - row["start_ns"]
        for row in rows(opened(tmp_path / "a.pftrace"), "cpu_ops")
    }
    assert lengths == {"aten::first": 8000, "aten::second": 1000}


def test_a_trace_without_slices_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.pftrace").write_bytes(_BEGINNING)
    with pytest.raises(MalformedTrace, match="a Perfetto trace without slices"):
        opened(tmp_path / "a.pftrace")


def test_damage_is_never_a_traceback(tmp_path: Path) -> None:
    whole = _BEGINNING + _slice(1000, 1, b"aten::mm") + _slice(3000, 2)
    for position in range(len(whole)):
        for value in (0x00, 0x7F, 0xFF):
            damaged = whole[:position] + bytes([value]) + whole[position + 1 :]
            (tmp_path / "a.pftrace").write_bytes(damaged)
            try:
                opened(tmp_path / "a.pftrace")
            except HtkError:
                continue
