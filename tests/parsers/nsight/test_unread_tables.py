"""Tables of an export that nothing reads are named with their rows, and are no damage."""

import sqlite3
from pathlib import Path
from shutil import copyfile

from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.doctor import check_recording

SAMPLE = Path(__file__).parents[3] / "sample_traces/nsight/two_ranks.sqlite"


def test_samples_of_cpus(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    copyfile(SAMPLE, path)
    with sqlite3.connect(path) as database:
        database.execute("create table SCHED_EVENTS(start, end, globalTid, cpu)")
        calls = [(k, k + 1) for k in range(3)]
        database.executemany("insert into SCHED_EVENTS values (?, ?, 1, 1)", calls)
        database.execute("create table CPU_NAMES(id, name)")
        database.execute("insert into CPU_NAMES values (1, 'no event')")
    database.close()
    trace = open_trace(path, OpenOptions(cache=False))
    rows = [r for r in check_recording(trace).to_pylist() if r["item"] == "tables not read"]
    assert [row["finding"] for row in rows] == ["rows of report.sqlite: SCHED_EVENTS 3"]
    kinds = {row["kind"] for row in trace.tables["parse_issues"].to_pylist()}
    assert "unread_events" not in kinds
