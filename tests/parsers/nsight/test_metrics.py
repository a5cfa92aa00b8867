"""Samples of GPU metrics, put into an export that has none: each process has its GPU's."""

import sqlite3
from pathlib import Path
from shutil import copyfile

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from sample_traces.nsight_export import SESSION_NS

SAMPLE = Path(__file__).parents[3] / "sample_traces/nsight/two_ranks.sqlite"
NAMES = {3: "GPC Clock Frequency [MHz]", 5: "DRAM Read Bandwidth [Throughput %]"}


def test_each_process_has_the_samples_of_its_gpu(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    copyfile(SAMPLE, path)
    with sqlite3.connect(path) as database:
        database.execute("create table GPU_METRICS(timestamp, typeId, metricId, value)")
        database.execute("create table TARGET_INFO_GPU_METRICS(typeId, metricId, metricName)")
        for gpu in range(2):
            of_type = 0x1600_0000_0000 + gpu
            for metric, name in NAMES.items():
                named = "insert into TARGET_INFO_GPU_METRICS values (?, ?, ?)"
                database.execute(named, (of_type, metric, name))
                sample = "insert into GPU_METRICS values (?, ?, ?, ?)"
                database.execute(sample, (7, of_type, metric, 10 * metric + gpu))
        database.execute("insert into GPU_METRICS values (9, 1, 1, 1)")  # of no name
    database.close()
    trace = open_trace(path, OpenOptions(cache=False))
    rows = trace.tables["counters"].to_pylist()
    assert [(r["rank"], r["name"], r["time_ns"] - SESSION_NS, r["value"]) for r in rows] == [
        (gpu, name, 7, 10 * metric + gpu) for gpu in range(2) for metric, name in NAMES.items()
    ]
    top = ask_trace(trace, "kernel_top", per="rank").to_pylist()
    assert {(r["rank"], r["clock_mhz"], r["memory_busy_pct"]) for r in top} == {
        (0, 30, 50),
        (1, 31, 51),
    }
