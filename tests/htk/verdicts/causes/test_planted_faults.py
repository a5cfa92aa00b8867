"""For each fault that the simulator plants the first recommendation names it: the docs' table."""

import re
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from tests.htk.verdicts.causes.advice_rows import assert_disjoint
from tests.htk.verdicts.causes.planted_job import job_of
from tests.thinned import thinned

PAGE = Path(__file__).parents[4] / "docs/recommendations.md"
ROWS = re.findall(r"^\| `(--[^`]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.M)


def check(folder: Path, flags: str, finding: str, evidence: str, seed: int) -> None:
    simulate_job(job_of(flags, seed), folder)
    answer = ask_trace(open_trace(folder), "recommendations", min_pct=0.0)
    first, *_ = answer.to_pylist()
    assert_disjoint(answer.to_pylist(), answer.coverage["recorded_window_ns"])
    assert first["finding"] == finding.strip(), first
    for word in re.findall(r"`([^`]+)`", evidence):
        assert word in first["evidence"], first


def test_the_table_has_a_row_for_each_fault() -> None:
    from htk.recording.simulate.plant_options import PLANTS

    planted = {re.split(r"[:\s]", flags)[1] for flags, *_ in ROWS if flags.startswith("--plant")}
    of_recordings = {"clock_offset", "missing_rank", "unlinked_launch"}
    assert planted == set(PLANTS) - of_recordings


@pytest.mark.parametrize(
    ("seed", "flags", "finding", "evidence"),
    thinned((seed, *row) for seed, row in enumerate(ROWS)),
    ids=[flags for flags, *_ in ROWS],
)
def test_the_first_recommendation_names_the_fault(
    seed: int, flags: str, finding: str, evidence: str, tmp_path: Path
) -> None:
    check(tmp_path, flags, finding, evidence, seed)


def test_start_up_is_named_where_ranks_begin_far_apart(tmp_path: Path) -> None:
    """Most of it is waiting in the first collective for a rank that still creates its context."""
    (row,) = (row for row in ROWS if row[0] == "--first-step 0")
    check(tmp_path, *row, seed=107)


@pytest.mark.nightly
@pytest.mark.parametrize(("flags", "finding", "evidence"), ROWS, ids=[f for f, *_ in ROWS])
@pytest.mark.parametrize("seed", range(100, 110))
def test_whatever_the_seed(
    seed: int, flags: str, finding: str, evidence: str, tmp_path: Path
) -> None:
    check(tmp_path, flags, finding, evidence, seed)
