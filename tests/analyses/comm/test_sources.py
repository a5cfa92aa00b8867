"""Several sources in one folder, and figures that NCCL's own tools print."""

import json
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace

SAMPLES = Path(__file__).parents[3] / "sample_traces"


def test_mixed_folders_load_together() -> None:
    names = ["flight_recorder/hang_missing_rank_v2.10", "inspector", "nccl_debug", "rccl_replay"]
    names += ["profiler_plugin", "nccl_tests", "ras", "inspector_prometheus"]
    trace = open_trace([str(SAMPLES / name) for name in names], OpenOptions(cache=False))
    found = ask_trace(trace, "collective_times").table
    assert set(found["source"].to_pylist()) == {
        "flight_recorder",
        "inspector",
        "inspector_prometheus",
        "nccl_debug",
        "profiler_plugin",
        "rccl_replay",
    }
    assert ask_trace(trace, "comm_model").table.num_rows > 0
    assert ask_trace(trace, "comm_progress").table.num_rows > 0
    assert ask_trace(trace, "hang").coverage["verdict"].startswith("rank 3 never came")


def test_bandwidth_is_what_the_inspector_prints() -> None:
    folder = SAMPLES / "inspector/nccl-inspector-12345"
    printed = {}
    for path in sorted(folder.iterdir()):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            perf = record.get("coll_perf", record.get("p2p_perf"))
            sort = "coll" if "coll" in perf else "p2p"
            key = (record["header"]["rank"], perf[sort], perf[f"{sort}_sn"])
            printed[key] = (perf[f"{sort}_algobw_gbs"], perf[f"{sort}_busbw_gbs"])
    rows = ask_trace(
        open_trace(str(folder), OpenOptions(cache=False)), "collective_times"
    ).table.to_pylist()
    found = {(r["rank"], r["raw_name"], r["seq"]): (r["algbw_gbps"], r["busbw_gbps"]) for r in rows}
    assert len(found) == 14 and found.keys() == printed.keys()
    for key, pair in printed.items():
        assert found[key] == pytest.approx(pair, rel=1e-6)


def test_verbose_lines_keep_the_time_that_the_gpu_measured(tmp_path: Path) -> None:
    """Their channels are timed by the host, here 7 us longer than the GPU says."""
    (path,) = (SAMPLES / "inspector/verbose").iterdir()
    lines, printed = [], []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        sort = "coll" if "coll_perf" in record else "p2p"
        perf = record[f"{sort}_perf"]
        perf["event_trace_ts"]["kernel_events"][0]["kernel_start_ts"] -= 7
        printed.append(perf[f"{sort}_busbw_gbs"])
        lines.append(json.dumps(record))
    (tmp_path / path.name).write_text("\n".join(lines))
    rows = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "collective_times").to_pylist()
    for row, busbw in zip(rows, printed, strict=True):
        assert row["busbw_gbps"] == pytest.approx(busbw, rel=1e-5)
        assert row["duration_busbw_gbps"] == pytest.approx(busbw, rel=1e-5)
