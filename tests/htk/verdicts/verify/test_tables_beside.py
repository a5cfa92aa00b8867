"""Tables of Ascend's profiler beside its timeline."""

import shutil
from pathlib import Path

import pytest

from htk.traces.trace.opening import open_trace
from htk.verdicts.overview.doctor import check_recording
from htk.verdicts.verify import tables_beside
from htk.verdicts.verify.outcome import DIFFERS, NOT_APPLICABLE, OK, Outcome, list_outcomes
from htk.verdicts.verify.subject import Subject

SAMPLES = Path(__file__).parents[4] / "sample_traces"
KERNELS = """Name,Accelerator Core,Start Time(us),Duration(us)
aclnnMm_MatMulCommon_MatMulV2,AI_CORE,1760000000000040.0,30.25
aclnnAdd_AddAiCore_Add,AI_VECTOR_CORE,1760000000000080.0,4.5
hcom_allReduce__123_0_1,HCCL,1760000000000120.0,40.004
"""
STEPS = """Device_id,Step,Computing,Communication(Not Overlapped),Communication,Free,Stage
0,3,34.75,40,40,45.25,120
"""


def checked(path: Path) -> Outcome:
    (outcome,) = list_outcomes(Subject(str(path)), tables_beside.checks())
    return outcome


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SAMPLES / "ascend/trace_view.json", tmp_path)
    return tmp_path


def test_tables_that_agree_to_their_digits(folder: Path) -> None:
    (folder / "kernel_details.csv").write_text(KERNELS)
    (folder / "step_trace_time.csv").write_text(STEPS)
    outcome = checked(folder / "trace_view.json")
    cores = 2  # that tell a kind: HCCL, and one without cubes
    assert (outcome.state, outcome.tally.compared) == (OK, 2 * 3 + cores + 3)


@pytest.mark.parametrize(
    ("table", "old", "new", "named"),
    [
        ("kernel_details.csv", "30.25", "31.25", "MatMulV2: time: 30,250 against 31,250"),
        (
            "kernel_details.csv",
            "aclnnAdd_AddAiCore_Add",
            "aclnnMul",
            "aclnnMul: count: 0 against 1",
        ),
        (
            "kernel_details.csv",
            "MatMulV2,AI_CORE",
            "MatMulV2,AI_VECTOR_CORE",
            "MatMulV2, on AI_VECTOR_CORE: tensor cores: used against not used",
        ),
        (
            "kernel_details.csv",
            "AI_VECTOR_CORE",
            "COMMUNICATION",
            "Add, on COMMUNICATION: kind: compute against comm",
        ),
        ("step_trace_time.csv", "34.75", "54.75", "Computing: 34,750 against 54,750"),
    ],
)
def test_what_differs_is_named(folder: Path, table: str, old: str, new: str, named: str) -> None:
    for name, text in (("kernel_details.csv", KERNELS), ("step_trace_time.csv", STEPS)):
        (folder / name).write_text(text.replace(old, new) if name == table else text)
    outcome = checked(folder / "trace_view.json")
    assert outcome.state == DIFFERS and named in outcome.finding


def beside(folder: Path) -> dict[str, str | None] | None:
    """What `doctor` says of the tables beside a recording, in a folder of any name."""
    rows = check_recording(open_trace(folder)).table.to_pylist()
    return next((row for row in rows if row["item"] == "tables beside"), None)


def test_doctor_says_whether_tables_agree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert beside(folder) is None
    table = folder / "kernel_details.csv"
    table.write_text(KERNELS)
    agreeing = beside(folder)
    assert agreeing and (agreeing["state"], agreeing["finding"]) == ("ok", "8 values")
    table.write_text(KERNELS.replace("30.25", "31.25"))
    differing = beside(folder)
    assert differing and differing["state"] == "warning"
    assert "1 of 8 values: kernel_details.csv, aclnnMm" in str(differing["finding"])
    monkeypatch.setattr("htk.verdicts.overview.doctor._MOST_BYTES", 10)
    unread = beside(folder)
    assert unread and unread["state"] == "note" and "htk verify" in str(unread["advice"])


@pytest.mark.parametrize("text", ["", "Name\n", "a,b\n1\n", "Name,Duration(us)\nMul,inf\n\0"])
def test_what_is_no_table_stops_nobody(folder: Path, text: str) -> None:
    for name in ("kernel_details.csv", "step_trace_time.csv"):
        (folder / name).write_text(text)
    check_recording(open_trace(folder / "trace_view.json"))


def test_steps_that_cover_a_part_are_left_out(folder: Path) -> None:
    (folder / "step_trace_time.csv").write_text(STEPS.replace(",120", ",60"))
    outcome = checked(folder / "trace_view.json")
    assert (outcome.state, outcome.tally.compared) == (OK, 0)
    assert "do not cover the recording" in outcome.finding


def test_without_tables_there_is_nothing_to_compare(folder: Path) -> None:
    outcome = checked(folder / "trace_view.json")
    assert outcome.state == NOT_APPLICABLE and "step_trace_time.csv" in outcome.finding
