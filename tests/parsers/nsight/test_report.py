"""Rows of a report by process, on the absolute clock, and the texts that they name by number."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.base.core.parser import Source
from htk.parsers.common.log_records import Issues
from htk.parsers.common.sqlite_file import open_database
from htk.parsers.nsight.report import NsightReport
from sample_traces.nsight_export import SESSION_NS, Export, Process


def read(export: Export, path: Path, issues: Issues | None = None) -> NsightReport:
    export.close()
    source = Source(str(path), lambda: path.open("rb"))
    with open_database(source, issues or Issues(), None) as database:
        return NsightReport.from_database(database, issues or Issues())


def of_two(path: Path) -> Export:
    """Two processes: the first works on GPUs 5 and 3, the second on 4; both call CUDA."""
    export = Export(path)
    for pid, devices in ((70, (5, 3)), (90, (4,))):
        for k, device in enumerate(devices):
            process = Process(export, pid, device)
            process.kernel("k", 10 + k, 15 + k, 1)
            process.copy(8, 20 + k, 30 + k, 2)
        process.call("cudaFree", 5, 6, 1, thread=3)
    return export


def test_rows_belong_to_processes_whichever_thread_made_them(tmp_path: Path) -> None:
    export = of_two(tmp_path / "t.sqlite")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=SESSION_NS)
    report = read(export, tmp_path / "t.sqlite")
    first, second = report.processes("kernels", "runtime")
    assert (report.pid(first), report.pid(second)) == (70, 90)
    assert (report.first_device(first), report.first_device(second)) == (3, 4)
    assert report.first_device(second + (1 << 24)) == -1
    own = report.of_process(first)
    assert {name: len(own.spans[name]) for name in ("kernels", "copies", "runtime", "syncs")} == {
        "kernels": 2, "copies": 2, "runtime": 1, "syncs": 0,
    }  # fmt: skip
    kernels = own.spans["kernels"]
    assert (kernels.start - SESSION_NS).tolist() == [10, 11]
    assert (kernels.end - SESSION_NS).tolist() == [15, 16]
    assert kernels.where([1]).end.tolist() == [SESSION_NS + 16]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("started", "shifted", "base"),
    [
        ([SESSION_NS], {}, SESSION_NS),
        ([None, 0, 7], {}, 0),
        ([-1, 1 << 61, (1 << 61) - 1], {}, (1 << 61) - 1),
        ([], {}, 0),
        ([SESSION_NS], {"EXPORT_PARAM_TIME_NORMALIZE": "true"}, 0),
        ([SESSION_NS], {"EXPORT_PARAM_TIME_NORMALIZE": "false", "OTHER": "true"}, SESSION_NS),
    ],
)
def test_the_clock_starts_with_the_session_unless_times_were_shifted(
    tmp_path: Path, started: list[int | None], shifted: dict[str, str], base: int
) -> None:
    export = Export(tmp_path / "t.sqlite")
    for moment in started:
        export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=moment)
    for name, value in shifted.items():
        export.add("META_DATA_EXPORT", name=name, value=value)
    assert read(export, tmp_path / "t.sqlite").base_ns == base


@pytest.mark.parametrize("callers", [0, 1, 2])
def test_work_without_a_process_is_of_the_only_one_that_called(
    tmp_path: Path, callers: int
) -> None:
    export = Export(tmp_path / "t.sqlite")
    Process(export, 70, 0).kernel("k", 10, 15, 1)
    export.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = NULL")
    for pid in (70, 90)[:callers]:
        Process(export, pid, 0).call("cudaFree", 5, 6, 1)
    report = read(export, tmp_path / "t.sqlite")
    (owner,) = report.spans["kernels"].process.tolist()
    assert owner == (Process(export, 70, 0).process if callers == 1 else -1)


def test_texts_are_found_by_number_and_unknown_ones_are_none(tmp_path: Path) -> None:
    """Numbers need not be in order; what is no text is empty, what is not listed is none."""
    export = Export(tmp_path / "t.sqlite")
    for number, value in ((9, "nine"), (2, "two"), (4, None)):
        export.add("StringIds", id=number, value=value)
    strings = read(export, tmp_path / "t.sqlite").strings
    wanted: Any = pa.chunked_array([pa.array([2, 3, 9, 10, None, 4, 1], pa.int64())])
    codes = strings.codes(wanted)
    assert strings.texts(codes).to_pylist() == ["two", None, "nine", None, None, "", None]
    nothing = read(Export(tmp_path / "e.sqlite"), tmp_path / "e.sqlite").strings
    assert nothing.codes(wanted).tolist() == [-1] * 7


def test_open_ranges_last_until_the_last_event_and_are_counted(tmp_path: Path) -> None:
    """The last event is here a range that begins last, and there one that ends last."""
    for number, other in enumerate(((50, 51), (20, 90))):
        path = tmp_path / f"{number}.sqlite"
        export = Export(path)
        process = Process(export, 70, 0)
        process.range("open", 10, None)
        process.range("open too", 60, None)
        process.range("closed", *other)
        issues = Issues()
        spans = read(export, path, issues).spans["nvtx"]
        last = max(60, other[1])
        assert sorted(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == sorted(
            [(10, last), (60, last), other]
        )
        (issue,) = issues.table().to_pylist()
        assert (issue["kind"], issue["count"]) == ("open_range", 2)
