"""rocprofv3's Perfetto traces say what its JSON says."""

from pathlib import Path
from typing import Any

from htk.base.errors import MalformedTrace
from sample_traces.rocprof_export import Perfetto, _field
from tests.parsers.opened_files import kept, opened, rows
from tests.parsers.rocprof_samples import JSON, SAMPLES

PERFETTO = SAMPLES / "rocprof_perfetto/two_steps.pftrace"


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def test_the_perfetto_trace_says_what_the_json_says() -> None:
    trace, right = kept(PERFETTO), kept(JSON)
    for table in ("kernels", "launches", "annotations", "kernel_links"):
        found, wanted = trace.tables[table].to_pylist(), right.tables[table].to_pylist()
        assert len(found) == len(wanted) > 0
        for a, b in zip(found, wanted, strict=True):
            assert without(a, "grid", "block") == without(b, "grid", "block")
    assert {(r["grid"], r["block"]) for r in rows(trace, "kernels")} == {(None, None)}
    found, wanted = (t.tables["collectives"].to_pylist() for t in (trace, right))
    assert [without(r, "source") for r in found] == [without(r, "source") for r in wanted]
    assert {row["process"] for row in rows(trace, "launches")} == {"908"}


def test_interned_names_end_with_their_sequence(tmp_path: Path) -> None:
    first, second = Perfetto(), Perfetto()
    span = {"begin_ns": 5_000, "end_ns": 6_000, "corr_id": 1, "agent": "GPU-0", "stream_ID": 1}
    first.event("kernel_dispatch", "one", span)
    second.event("kernel_dispatch", "two", span | {"begin_ns": 5_500})  # the same numbers again
    (tmp_path / "a.pftrace").write_bytes(first.data + second.data)
    found = rows(opened(tmp_path / "a.pftrace"), "kernels")
    assert [row["name"] for row in found] == ["one", "two"]


def test_a_cut_perfetto_trace_gives_what_came_before(tmp_path: Path) -> None:
    whole = PERFETTO.read_bytes()
    counts = []
    for size in range(700, len(whole), 311):
        (tmp_path / "cut.pftrace").write_bytes(whole[:size])
        try:
            trace = opened(tmp_path / "cut.pftrace")
        except MalformedTrace:
            counts.append(0)
            continue
        counts.append(trace.tables["events"].num_rows)
    assert counts == sorted(counts) and counts[0] < counts[-1]
    issues = rows(opened(tmp_path / "cut.pftrace"), "parse_issues")
    assert [row["kind"] for row in issues] == ["truncated"]


SPAN = {"begin_ns": 5_000, "end_ns": 6_000, "corr_id": 7, "agent": "GPU-2", "stream_ID": 1}
INTERNED, TEXT, KEY = 12, 6, 10


def annotation(key: str, value: int | str) -> bytes:
    """An annotation that spells its key and value out; numbers as signed ones."""
    if isinstance(value, str):
        return _field(4, _field(KEY, key) + _field(TEXT, value))
    return _field(4, _field(KEY, key) + _field(4, value & (1 << 64) - 1))


def spelled(
    values: dict[str, int | str], *, sequence: int, kind: int = 1, name: str = "k"
) -> bytes:
    body = _field(9, kind) + _field(22, "kernel_dispatch") + _field(23, name)
    body += b"".join(annotation(key, value) for key, value in values.items())
    return _field(1, _field(10, sequence) + _field(13, 2) + _field(11, body))


def read(tmp_path: Path, data: bytes) -> Any:
    (tmp_path / "a.pftrace").write_bytes(data)
    return opened(tmp_path / "a.pftrace")


def test_every_field_of_a_kernel_and_of_a_copy(tmp_path: Path) -> None:
    trace = Perfetto()
    own = {"VGPR_Count": 30, "Accum_VGPR_Count": 2, "LDS_Block_Size": 64, "queue": 9}
    trace.event("kernel_dispatch", "k.kd", SPAN | own)
    none = {"corr_id": 8, "VGPR_Count": 0, "Accum_VGPR_Count": 0}
    trace.event("kernel_dispatch", "k", SPAN | none)
    trace.event("kernel_dispatch", "k", SPAN | {"VGPR_Count": 30, "corr_id": 0, "agent": "CPU"})
    copied = {"src_agent": "GPU-2", "dst_agent": "CPU-0", "copy_bytes": 3_000}
    trace.event("memory_copy", "MEMORY_COPY_DEVICE_TO_HOST", SPAN | copied)
    between = {"src_agent": "GPU-2", "dst_agent": "GPU-3"}
    trace.event("memory_copy", "MEMORY_COPY_DEVICE_TO_DEVICE", SPAN | between)
    found = rows(read(tmp_path, bytes(trace.data)), "kernels")
    told = ("name", "device", "stream", "correlation", "registers", "shared_memory_bytes")
    assert [tuple(row[name] for name in told) for row in found[:3]] == [
        ("k", 2, 1, 7, 32, 64), ("k", 2, 1, 8, 0, None), ("k", None, 1, None, None, None),
    ]  # fmt: skip
    moved = ("name", "device", "size_bytes", "bandwidth_gbps")
    assert [tuple(row[name] for name in moved) for row in found[3:]] == [
        ("Memcpy DtoH (Device -> Host)", 2, 3_000, 3.0),
        ("Memcpy DtoD (Device -> Device)", 3, None, None),
    ]


def test_names_that_are_spelled_out_and_events_that_end(tmp_path: Path) -> None:
    """Numbers may be signed; only what begins is an event; a kernel without a name is unknown."""
    data = spelled(SPAN | {"stream_ID": -1}, sequence=4)
    data += spelled(SPAN, sequence=4, kind=2) + spelled(SPAN, sequence=4, name="")
    found = rows(read(tmp_path, data + bytes(Perfetto().data)), "kernels")
    assert [(row["name"], row["stream"]) for row in found] == [("k", None), ("unknown", 1)]


def test_interned_text_belongs_to_its_sequence(tmp_path: Path) -> None:
    """Two sequences number their names alike; one starts anew in between."""

    def packet(sequence: int, flags: int, names: dict[int, str], name: int) -> bytes:
        interned = b"".join(_field(2, _field(1, k) + _field(2, text)) for k, text in names.items())
        body = _field(9, 1) + _field(22, "kernel_dispatch") + _field(10, name)
        body += b"".join(annotation(key, value) for key, value in SPAN.items())
        parts = _field(10, sequence) + _field(13, flags) + _field(INTERNED, interned)
        return _field(1, parts + _field(11, body))

    data = packet(1, 1, {1: "a", 2: "b"}, 1) + packet(2, 1, {1: "c"}, 1) + packet(1, 2, {}, 2)
    data += packet(2, 2, {3: "d"}, 3) + packet(1, 1, {2: "e"}, 1) + packet(1, 2, {}, 2)
    names = [row["name"] for row in rows(read(tmp_path, data), "kernels")]
    assert sorted(names) == ["a", "b", "c", "d", "e", "unknown"]


def test_markers_of_both_sorts_and_calls_of_libraries(tmp_path: Path) -> None:
    """Kinds up to 9 are calls of roctx: they are ranges only where there are no others."""
    trace = Perfetto()
    trace.event("kernel_dispatch", "k", SPAN)
    for kind, name in ((9, "pushed"), (10, "ranged")):
        trace.event("marker_api", name, SPAN | {"kind": kind, "tid": 40 + kind})
    libraries = ("hip_api", "hsa_api", "rocdecode_api", "rocjpeg_api")
    for number, sort in enumerate(libraries):
        trace.event(sort, sort, SPAN | {"tid": number})
    found = read(tmp_path, bytes(trace.data))
    ranges = [(row["name"], row["thread"]) for row in rows(found, "annotations")]
    assert ranges == [("ranged", "50")]
    calls = {row["name"]: (row["api"], row["thread"]) for row in rows(found, "launches")}
    apis = ("hip_runtime", "hsa_api", "rocdecode", "rocjpeg")
    assert calls == {
        sort: (api, str(k)) for k, (sort, api) in enumerate(zip(libraries, apis, strict=True))
    }
