"""Verdicts on dumps of made jobs hold to what happened in them: any parallelism, any recorder."""

import json
from pathlib import Path

import pytest

from htk.answers.output.result import Result
from tests.analyses.comm.hanging_logs import causes, post_mortem
from tests.analyses.comm.made_dumps import MadeJob, dumped, made_job


def hold_to_the_truth(job: MadeJob, found: Result) -> None:
    """Assert that a verdict says nothing but what is true of the job."""
    said, first = causes(found), found.to_pylist()[0]
    blamed = {ranks for finding, ranks in said if finding != "cannot_decide"}
    if not job.hangs:
        assert [finding for finding, _ in said] == ["nothing_pending"]
    elif job.fault == "missing":
        site = job.first_missed()
        assert site is not None
        assert (first["finding"], first["ranks"]) == ("missing_rank", str(job.culprit))
        assert (first["group"], first["seq"]) == (site.group, site.number), "the first one missed"
        assert json.loads(first["group_ranks"]) == [*site.members]
    elif job.fault == "network" and job.library == "gloo":
        assert not found.coverage["decided"] or said[0][0] == "not_completed"
    elif job.fault == "network":
        assert said[0][0] == "not_completed"
    else:
        assert said[0][0] != "nothing_pending"
        is_circle = first["finding"] == "cycle"
        assert not found.coverage["decided"] or is_circle or blamed == {str(job.culprit)}


AT_NIGHT = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(8, 40)]


@pytest.mark.parametrize("seed", [*range(8), *AT_NIGHT])
def test_a_verdict_on_dumps_says_nothing_that_is_not_so(tmp_path: Path, seed: int) -> None:
    job = made_job(seed)
    hold_to_the_truth(job, post_mortem(tmp_path, dumped(job, seed)))


@pytest.mark.nightly
def test_many_made_jobs(tmp_path: Path) -> None:
    for seed in range(1000, 3000):
        job = made_job(seed)
        hold_to_the_truth(job, post_mortem(tmp_path / str(seed), dumped(job, seed)))


def test_of_a_pickle_and_json_of_one_rank_the_one_with_stacks_is_read(tmp_path: Path) -> None:
    job = next(j for j in map(made_job, range(100)) if j.fault == "missing" and j.hangs)
    files = next(f for f in (dumped(job, seed) for seed in range(50)) if len(f) > len(job.done))
    renamed = {
        name.replace("comm_lib_trace", "a" if name.endswith(".json") else "z"): data
        for name, data in files.items()
    }
    found = post_mortem(tmp_path, renamed)
    assert causes(found) == [("missing_rank", str(job.culprit))]
    assert "train.py" in found.to_pylist()[0]["frames"]
