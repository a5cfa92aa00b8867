"""Files made to hurt: each is one failed file or a counted loss, and the others answer."""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from htk.base.core.parser import Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.faces.cli.main import run_command_line
from htk.parsers import flight_recorder, kineto, memory_snapshot, profiler_plugin
from htk.parsers.common.safe_pickle import RefusedPickle, load_plain
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, of_rank, write
from tests.parsers.hostile_values import HUGE, WRONG, dump, outcome, read, variants
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def shared(kind: type) -> bytes:
    """The opcodes of a container of two times the one before, sixty times over."""
    value = kind()
    for _ in range(60):
        value = kind((value, value))
    return pickle.dumps(value, 2)[2:-1]


LISTS, TUPLES = shared(list), shared(tuple)
LONG_INTEGER = b"\x8b" + struct.pack("<i", 20_000) + b"\x7f" * 20_000


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}q\x00" + text("pg_config") + b"r\x00\x00\x00\x10" + text("") + b"s.",
        b"\x80\x02}q\x00" + text("pg_config") + b"r\xff\xff\xff\x7f" + text("") + b"s.",
        b"\x80\x02}" + text("version") + LONG_INTEGER + b"s.",
        b"\x80\x02}" + TUPLES + b"Ns.",
        b"\x80\x02}" + TUPLES.replace(b"\x86q", b"\x86\x95" + bytes(8) + b"q") + b"Ns.",
        b"\x80\x02}" + TUPLES.replace(b"\x86q", b"\x86(eq") + b"Ns.",
        b"\x80\x04})\x94" + b"".join(b"h%ch%c\x86\x94" % (k, k) for k in range(60)) + b"Ns.",
        b"\x80\x04}" + b"\x8e" + struct.pack("<Q", 1 << 40) + b"x",
        b"\x80\x02](" + b"K\x01K\x02\x862" * 30 + b"e.",
        b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n)\x85R.",
    ],
)
def test_a_pickle_gets_no_memory_that_its_size_does_not_account_for(data: bytes) -> None:
    tracemalloc.start()
    try:
        for parser in (flight_recorder, memory_snapshot):
            with pytest.raises(MalformedTrace) as caught:
                read(parser, data)
            assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_loads_as_pickle_does(protocol: int) -> None:
    pair, frames = ("0", "default_pg"), [{"name": "f", "line": 3}]
    many = [
        {"pair": pair, "odd": (k, f"hj{k}"), "frames": frames, "x": 2**33 + k} for k in range(70)
    ]
    for value in (
        many,
        {"a": (1, (2, (3, ("x", pair)))), 4: [1.5, None, True, "ä" * 300], "r": "rank" * 9},
        {"pools": [{"id": (0, k % 3), "again": pair} for k in range(500)]},
        [str(k) for k in range(70_000)],  # memo slots beyond 65,536
    ):
        assert load_plain(pickle.dumps(value, protocol)) == value


def test_a_tuple_as_a_key_is_refused_where_tuples_nest() -> None:
    inner = (1, 2)
    with pytest.raises(RefusedPickle, match="tuple as a key"):
        load_plain(pickle.dumps([inner, (inner, inner), {(inner, 3): 1}], 2))


# Any value in any field


def snapshot() -> dict[str, Any]:
    frames = [{"filename": "a.py", "line": 3, "name": "f"}]
    event = {"action": "alloc", "addr": 1, "size": 512, "time_us": 5, "frames": frames}
    block = {"address": 1, "size": 512, "state": "active_allocated"}
    segment = {"device": 0, "total_size": 2 << 20, "blocks": [block]}
    return {"segments": [segment], "device_traces": [[event, event | {"action": "oom"}]]}


@pytest.mark.parametrize("wrong", thinned(WRONG), ids=lambda w: str(type(w).__name__))
def test_any_value_in_any_field_of_a_pickle_or_its_json(wrong: Any) -> None:
    for parser, whole in ((flight_recorder, dump()), (memory_snapshot, snapshot())):
        ends = [outcome(parser, pickle.dumps(v, 2)) for v in variants(whole, wrong)]
        assert "read" in ends or wrong is HUGE
    ends = [outcome(flight_recorder, json.dumps(v).encode()) for v in variants(dump(), wrong)]
    assert "read" in ends


@pytest.mark.parametrize("field", ["version", "comm_lib_version", "pg_config", "nccl_comm_state"])
def test_lists_within_lists_that_are_shared_end(field: str) -> None:
    data = b"\x80\x02}(" + text(field) + LISTS + text("entries") + b"](}("
    data += text("profiling_name") + text("nccl:all_reduce") + text("pg_id") + LISTS
    data += text("input_sizes") + LISTS + text("process_group") + LISTS + b"ueu."
    assert outcome(flight_recorder, data) in ("read", "failed")


def test_a_shared_address_of_a_snapshot_ends() -> None:
    data = b"\x80\x02}(" + text("segments") + b"]" + text("device_traces") + b"](](}("
    data += text("action") + text("alloc") + text("size") + b"K\x05" + text("time_us") + b"K\x07"
    data += text("addr") + LISTS + text("frames") + LISTS + b"ueeu."
    assert outcome(memory_snapshot, data) == "read"


def test_one_hostile_file_fails_and_the_others_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in (0, 1):
        name = f"comm_lib_trace_rank_{rank}"
        (tmp_path / name).write_bytes(pickle.dumps(dump(), 2))
    bomb = b"\x80\x02}q\x00" + text("pg_config") + b"r\x00\x00\x00\x10" + text("") + b"s."
    (tmp_path / "comm_lib_trace_rank_2").write_bytes(bomb)
    (tmp_path / "snapshot_rank_3.pickle").write_bytes(
        pickle.dumps(snapshot() | {"segments": 5, "device_traces": 7}, 2)
    )
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert [name.rsplit("_", 1)[1][0] for name, _ in trace.failed] == ["2", "3"]
    assert trace.tables["collectives"].num_rows == 4

    def broken(source: Source, options: ParseOptions) -> Parsed:
        raise ZeroDivisionError("division by zero")

    write(tmp_path / "rank4.json", kernel("gemm", 1, 2), **of_rank(4))
    monkeypatch.setattr(kineto, "parse", broken)
    failed = dict(open_trace(tmp_path, OpenOptions(cache=False)).failed)
    why = failed[str(tmp_path / "rank4.json")]
    assert "ZeroDivisionError" in why and "report" in why


def test_values_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("htk.parsers.common.log_records._MOST_OBJECT_BYTES", 1 << 20)
    many = b'{"version": "2.10", "pg_status": {}, "entries": [' + b"{}," * 20_000 + b"{}]}"
    with pytest.raises(MalformedTrace, match="MiB of memory"):
        read(flight_recorder, many)
    monkeypatch.setattr("htk.parsers.common.safe_pickle._MOST_CONTAINERS", 1000)
    with pytest.raises(MalformedTrace, match="containers"):
        read(
            flight_recorder,
            pickle.dumps({"version": "2.10", "entries": [{} for _ in range(2000)]}, 2),
        )


def test_numbers_without_end_in_text_formats() -> None:
    event = (
        b'[{"name": "AllReduce", "cat": "COLL", "ph": "%c", "id": 0, "pid": 1, "tid": 1, "ts": %s}'
    )
    for ts in (b"1.0e999999", b"1.0e-999999999", b"123456.5"):
        lines = [event % (b"b"[0], ts), event[1:] % (b"e"[0], ts)]
        assert outcome(profiler_plugin, b",\n".join(lines) + b"\n]") == "read"
    head = b'[{"name": "G", "cat": "GROUP", "ph": "b", "id": 0, "pid": 1, "ts": 1.5},\n'
    deep_events = head + head[1:] * 3000
    assert outcome(profiler_plugin, deep_events) == "read"


def test_good_members_of_an_archive_outlive_bad_ones(tmp_path: Path) -> None:
    good = pickle.dumps(dump(), 2)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../comm_lib_trace_rank_5", good)
        archive.writestr("host_2024-05-01T10:11:12_rank_0", good)
        archive.writestr("C:/comm_lib_trace_rank_6", good)
    with tarfile.open(tmp_path / "b.tar", "w") as archive_:
        for name in ("../up_rank_7", "node:1_rank_1"):
            member = tarfile.TarInfo(name)
            member.size = len(good)
            archive_.addfile(member, io.BytesIO(good))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert sorted(f.rank for f in trace.files if f.rank is not None) == [0, 1]
    assert len(trace.failed) == 3
    assert all("points outside" in why for _, why in trace.failed)


def test_names_of_any_bytes_and_blanks_before_a_trace(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/r\xe9sum\xe9_rank_0"
    with open(odd, "wb") as file:
        file.write(pickle.dumps(dump(), 2))
    write(tmp_path / "rank1.json", kernel("gemm", 1, 2), **of_rank(1))
    text_ = (tmp_path / "rank1.json").read_bytes()
    (tmp_path / "rank1.json").write_bytes(b" " * (1 << 20) + b"\n" + text_)
    trace = open_trace(tmp_path, OpenOptions(cache=True))
    assert not trace.failed and not trace.unread
    assert trace.tables["kernels"].num_rows == 1
    assert min(f.file for f in trace.files).encode().endswith(b"r\\xe9sum\\xe9_rank_0")


def test_names_do_not_steer_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b[2J\x1b]0;owned\x07b\u202ec\x9b31md\ne"
    write(tmp_path / "rank0.json", kernel(name, 1, 2), **of_rank(0))
    (tmp_path / "comm_\x1b[31m_rank_1").write_bytes(b"\x80\x02}X\x09\x00\x00\x00pg_config.")
    for form in ("table", "md"):
        assert run_command_line(["kernel_top", str(tmp_path), "--format", form, "--no-cache"]) == 0
        printed = capsys.readouterr()
        assert "a\\x1b[2J\\x1b]0;owned\\x07b\\u202ec\\x9b31md e" in printed.out
        assert "left out" in printed.err
        for text_ in (printed.out, printed.err):
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text_)
    assert run_command_line(["kernel_top", "/nowhere/\x1b[2J"]) == 3
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_changed_bytes_are_said_in_words(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTK_ENGINE", engine)
    write(tmp_path / "rank0.json", kernel("gemm", 1, 2), **of_rank(0))
    text_ = (tmp_path / "rank0.json").read_bytes()
    (tmp_path / "rank0.json").unlink()
    gz = bytearray(gzip.compress(text_))
    gz[-6] ^= 1  # within the checksum
    (tmp_path / "rank0.json.gz").write_bytes(gz)
    packer = zstandard.ZstdCompressor(write_checksum=True)
    of_one = text_.replace(b'"rank": 0', b'"rank": 1')
    (tmp_path / "rank1.json.zst").write_bytes(packer.compress(of_one)[:-1] + b"?")
    assert run_command_line(["kernel_top", str(tmp_path), "--no-cache"]) == 0
    printed = capsys.readouterr()
    assert "gemm" in printed.out and "1 file with a wrong checksum" in printed.out
    assert "rank1.json.zst: the checksum is wrong" in printed.err  # nothing of it could be read
    assert run_command_line(["doctor", str(tmp_path), "--no-cache"]) == 0
    assert "the checksum is wrong" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_events_without_a_phase_are_counted(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_ENGINE", engine)
    file = tmp_path / "rank0.json"
    write(file, kernel("a", 1, 2), kernel("b", 3, 2), kernel("c", 5, 2), **of_rank(0))
    head, first, second, third = file.read_bytes().split(b'"ph": "X"')
    file.write_bytes(head + b'"ph": "X"' + first + b'"ph": null' + second + b'"was": 1' + third)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.tables["kernels"]["name"].to_pylist() == ["a"]
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert (issue["kind"], issue["event"], issue["count"]) == ("no_phase", 1, 2)


def test_bombs_and_locked_members_fail_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What unpacks a thousandfold is given up early; what lies beside it answers."""
    for module in ("decompress", "archives"):
        monkeypatch.setattr(f"htk.base.io.{module}._FREE_BYTES", 1 << 20)
    for rank in range(6):
        write(tmp_path / f"rank{rank}.json", kernel(f"gemm{rank}", 1, 2), **of_rank(rank))
    good = [(tmp_path / f"rank{rank}.json").read_bytes() for rank in range(6)]
    for rank in range(1, 6):
        (tmp_path / f"rank{rank}.json").unlink()
    bomb = b'{"traceEvents": [' + b" " * (8 << 20)
    (tmp_path / "bomb_rank10.json.gz").write_bytes(gzip.compress(bomb))
    (tmp_path / "bomb_rank11.json.zst").write_bytes(zstandard.compress(bomb))
    for name, kind in (("a.zip", zipfile.ZIP_DEFLATED), ("locked.zip", zipfile.ZIP_STORED)):
        with zipfile.ZipFile(tmp_path / name, "w", kind) as archive:
            rank = 1 if name == "a.zip" else 3
            archive.writestr(f"rank{rank}.json", good[rank])
            archive.writestr("bad_rank13.json", bomb if name == "a.zip" else good[2])
    locked = bytearray((tmp_path / "locked.zip").read_bytes())
    local, central = locked.rindex(b"PK\x03\x04"), locked.rindex(b"PK\x01\x02")
    locked[local + 6] |= 1  # the mark of a password
    locked[central + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    with tarfile.open(tmp_path / "b.tar", "w") as archive_:
        packed = gzip.compress(bomb.ljust(66 << 20))  # unpacked in a process of its own
        for name, data in (("rank4.json", good[4]), ("bad_rank14.json.gz", packed)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive_.addfile(member, io.BytesIO(data))
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive_:
        member = tarfile.TarInfo("bad_rank15.json")
        member.size = len(bomb)
        archive_.addfile(member, io.BytesIO(bomb))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert [f.rank for f in trace.files] == [0, 1, 3, 4]
    reasons = {name.rsplit("/", 1)[1]: why for name, why in trace.failed}
    assert len(reasons) == 6
    assert "needs a password" in reasons.pop("locked.zip!bad_rank13.json")
    assert all("decompression bomb" in why for why in reasons.values()), reasons
