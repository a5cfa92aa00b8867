"""rocprofv3's Perfetto traces say what its JSON says."""

from pathlib import Path
from typing import Any

from htk.errors import MalformedTrace
from sample_traces.rocprof_export import Perfetto
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
