"""Tables of Ascend's profiler alone, against sums by hand."""

import io
import json
import shutil
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.core.parser import Head, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import ascend_tables
from tests.parsers.opened_files import kept, opened, rows

SAMPLES = Path(__file__).parents[2] / "sample_traces"
SAMPLE = SAMPLES / "ascend_tables/kernel_details.csv"
FIRST_NS = 1_760_000_000_000_040_125
HEADER = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num"


def collectives(*calls: tuple[str, float, float]) -> str:
    listed = {
        name: {"Communication Time Info": {"Start Timestamp(us)": start, "Elapse Time(ms)": ms}}
        for name, start, ms in (*calls, ("Total Op Info", 0.0, 1.0))
    }
    return json.dumps({"step3": {"p2p": {}, "collective": listed}})


def test_rows_are_kernels_in_steps() -> None:
    trace = kept(SAMPLE)
    kernels = rows(trace, "kernels")
    told = [(k["name"].split("_")[-1], k["stream"], k["grid"]) for k in kernels[:3]]
    assert told == [("MatMulV2", 2, "[20,1,1]"), ("Add", 2, "[48,1,1]"), ("1", 1_000_000, None)]
    assert (kernels[0]["start_ns"], kernels[0]["end_ns"]) == (FIRST_NS, FIRST_NS + 30_250)
    steps = [link["step"] for link in trace.tables["kernel_links"].to_pylist()]
    assert steps == [3] * 4 + [4] * 4
    (row,) = ask_trace(trace, "time_breakdown").to_pylist()
    compute = 2 * (30_250 + 4_500 + 10_250)
    assert (row["compute_ns"], row["comm_ns"]) == (compute, 2 * 40_000)
    assert row["exposed_comm_ns"] == 2 * (40_000 - 10_250)  # under which the cast runs
    assert [s["gpu_period_ns"] for s in ask_trace(trace, "step_times").to_pylist()] == [
        99_875,
        200_000,
    ]


def test_groups_are_those_of_the_collectives_beside(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path)
    calls = [(f"hcom_allReduce__123_0_{k}@77", 1.76e15, 0.04) for k in (1, 2)]
    (tmp_path / "communication.json").write_text(collectives(*calls))
    found = rows(opened(tmp_path / SAMPLE.name), "collectives")
    assert [(c["type"], c["group"], c["end_ns"] - c["start_ns"]) for c in found] == [
        ("all_reduce", "77", 40_000)
    ] * 2


def test_collectives_beside_of_any_size_take_no_more_memory_than_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(SAMPLE, tmp_path)
    call = ("hcom_allReduce__123_0_1@77", 1.76e15, 0.04)
    (tmp_path / "communication.json").write_text(collectives(call))
    monkeypatch.setattr(ascend_tables, "_MOST_BYTES", 20)
    trace = opened(tmp_path / SAMPLE.name)
    assert {c["group"] for c in rows(trace, "collectives")} != {"77"}
    assert "too_large" in {issue["kind"] for issue in rows(trace, "parse_issues")}


def test_collectives_are_taken_from_beside_where_the_table_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "host_ascend_pt/ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder.parent / "profiler_info_5.json").write_text("{}")
    table = f"{HEADER}\n1,Mul,Mul,AI_VECTOR_CORE,1760000000000000.5\t,2.25,0,8\n"
    (folder / "kernel_details.csv").write_text(table)
    (folder / "step_trace_time.csv").write_text("Device_id,Step,Computing\n1,,2.25\n")
    (folder / "communication_matrix.json").write_text("{}")
    (folder / "communication.json").write_text(
        collectives(("hcom_send__9_0@1", 1_760_000_000_000_001.0, 0.5))
    )
    trace = opened(tmp_path)
    assert [(r["rank"], r["format"]) for r in rows(trace, "ranks")] == [(5, "ascend_tables")]
    kernels = [(k["name"], k["kind"], k["end_ns"] - k["start_ns"]) for k in rows(trace, "kernels")]
    assert kernels == [("Mul", "compute", 2_250), ("hcom_send__9_0", "comm", 500_000)]


@pytest.mark.parametrize("other", ["ascend/trace_view.json", "ascend_db"])
def test_beside_other_exports_tables_are_passed_over(tmp_path: Path, other: str) -> None:
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    source = SAMPLES / other
    files = [source] if source.is_file() else list(source.iterdir())
    folder.mkdir()
    for file in (*files, SAMPLE):
        shutil.copy(file, folder)
    (formats,) = {r["format"] for r in rows(opened(tmp_path), "ranks")}
    assert formats == other.split("/")[0]


def test_damage_is_counted_or_refused() -> None:
    broken = f"{HEADER}\n0,A,A,AI_CORE,1.5,2,0,1\n0,B,B,AI_CORE,N/A,2,0,1\n0,C,C,AI_CORE,3,-1,0,1\n"
    parsed = ascend_tables.parse(
        Source("t.csv", lambda: io.BytesIO(broken.encode())), ParseOptions()
    )
    assert parsed.tables["kernels"]["name"].to_pylist() == ["A"]
    issues = parsed.tables["parse_issues"].to_pylist()
    assert [(i["kind"], i["count"]) for i in issues if "rows" in i["text"]] == [("no_time", 2)]
    with pytest.raises(MalformedTrace):
        ascend_tables.parse(Source("t.csv", lambda: io.BytesIO(HEADER.encode())), ParseOptions())


def test_other_tables_of_its_folder_are_not_taken() -> None:
    sums = b"Device_id,OP Type,Core Type,Count,Total Time(us)\n0,Mul,AI_CORE,1,2\n"
    assert not ascend_tables.sniff(Head("op_statistic.csv", sums))
    assert ascend_tables.sniff(Head("k.csv", SAMPLE.read_bytes()))
