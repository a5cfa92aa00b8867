"""Verdicts on made logs hold to what is true of the job, whatever the seed and the tags."""

import json
from pathlib import Path

import pytest

from htk.answers.output.result import Result
from tests.analyses.comm.hanging_logs import causes, post_mortem
from tests.analyses.comm.made_logs import TAGS, MadeLog, made_log
from tests.thinned import thinned

_NOT_BLAME = {"cannot_decide", "nothing_pending"}
_SILENT = ("mismatch", "ended", "died", "enqueued")  # of which more than silence is told


def hold_to_the_truth(log: MadeLog, found: Result) -> None:
    """Assert that a verdict says nothing but what is true of the job."""
    rows, said = found.to_pylist(), causes(found)
    excluded = json.loads(found.coverage.get("exclude_ranks") or "[]")
    assert set(excluded) <= {log.culprit}
    blamed = {ranks for finding, ranks in said if finding not in _NOT_BLAME}
    if log.state == "ended":
        assert said == [("nothing_pending", "")]
    elif log.state == "enqueued":
        assert said == [("missing_rank", str(log.culprit))] and not found.coverage["decided"]
    elif log.state == "died":
        assert log.cause is not None
        missed = ("missing_rank", log.cause[1])  # for which others wait, and which says why
        assert said[0] == log.cause or (said[0] == missed and log.cause[1])
        assert found.coverage["decided"]
    elif log.state == "mismatch":
        assert said[0][0] == "type_mismatch"
        assert not found.coverage["decided"] or blamed == {str(log.culprit)}
    elif log.state == "counted" and len(log.speakers) == log.size:
        assert said == [("not_completed", f"0-{log.size - 1}")]
    else:
        assert not blamed, "a rank that wrote nothing is not known to be missing"
    _hold_groups(log, rows)
    for row in rows:
        if row["finding"] == "waiting" and " either" not in row["text"]:
            assert row["seq"] in (None, log.seq), "the oldest open call is what a rank waits at"


def _hold_groups(log: MadeLog, rows: list[dict[str, object]]) -> None:
    groups = {row["group_ranks"] for row in rows} - {None}
    if log.state == "counted":
        everyone = json.dumps([*range(log.size)], separators=(",", ":"))
        assert groups <= {everyone}, "RAS counts the ranks"
    elif log.speakers and max(log.speakers) < log.size - 1 and log.state != "mismatch":
        assert not groups, "nothing tells how many ranks there are"


def answer(folder: Path, seed: int) -> tuple[MadeLog, Result]:
    log = made_log(seed)
    tag = list(TAGS)[seed % len(TAGS)]
    return log, post_mortem(folder, {"job.log": log.text(tag)})


@pytest.mark.parametrize("seed", [*thinned(range(60), 7), 1003, 1382, 1389])
def test_a_verdict_says_nothing_that_is_not_so(tmp_path: Path, seed: int) -> None:
    hold_to_the_truth(*answer(tmp_path, seed))


@pytest.mark.nightly
def test_many_made_logs(tmp_path: Path) -> None:
    for seed in range(1000, 3000):
        hold_to_the_truth(*answer(tmp_path / str(seed), seed))


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_tags_change_nothing(tmp_path: Path, seed: int) -> None:
    log = made_log(seed)
    said = {
        tag: post_mortem(tmp_path / tag, {"job.log": log.text(tag)}).coverage["verdict"]
        for tag in TAGS
    }
    assert set(said.values()) == {said["none"]}
