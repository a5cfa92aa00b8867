"""Tables of Ascend's profiler beside its timeline."""

import shutil
from pathlib import Path

import pytest

from htk.verdicts.verify import tables_beside
from htk.verdicts.verify.outcome import DIFFERS, NOT_APPLICABLE, OK, Outcome, outcomes
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
    (outcome,) = outcomes(Subject(str(path)), tables_beside.checks())
    return outcome


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SAMPLES / "ascend/trace_view.json", tmp_path)
    return tmp_path


def test_tables_that_agree_to_their_digits(folder: Path) -> None:
    (folder / "kernel_details.csv").write_text(KERNELS)
    (folder / "step_trace_time.csv").write_text(STEPS)
    outcome = checked(folder / "trace_view.json")
    assert (outcome.state, outcome.tally.compared) == (OK, 2 * 3 + 3)


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
        ("step_trace_time.csv", "34.75", "54.75", "Computing: 34,750 against 54,750"),
    ],
)
def test_what_differs_is_named(folder: Path, table: str, old: str, new: str, named: str) -> None:
    for name, text in (("kernel_details.csv", KERNELS), ("step_trace_time.csv", STEPS)):
        (folder / name).write_text(text.replace(old, new) if name == table else text)
    outcome = checked(folder / "trace_view.json")
    assert outcome.state == DIFFERS and named in outcome.finding


def test_steps_that_cover_a_part_are_left_out(folder: Path) -> None:
    (folder / "step_trace_time.csv").write_text(STEPS.replace(",120", ",60"))
    outcome = checked(folder / "trace_view.json")
    assert (outcome.state, outcome.tally.compared) == (OK, 0)
    assert "do not cover the recording" in outcome.finding


def test_without_tables_there_is_nothing_to_compare(folder: Path) -> None:
    outcome = checked(folder / "trace_view.json")
    assert outcome.state == NOT_APPLICABLE and "step_trace_time.csv" in outcome.finding
