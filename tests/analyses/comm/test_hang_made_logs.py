"""Verdicts on made logs hold to what is true of the job, whatever the seed and the tags."""

import json
from pathlib import Path

import pytest

from tests.analyses.comm.hanging_logs import causes, post_mortem
from tests.analyses.comm.made_logs import TAGS, made_log

_NOT_BLAME = {"cannot_decide", "nothing_pending"}


@pytest.mark.parametrize("seed", range(60))
def test_a_verdict_says_nothing_that_is_not_so(tmp_path: Path, seed: int) -> None:
    log = made_log(seed)
    tags = list(TAGS)
    found = post_mortem(tmp_path, {"job.log": log.text(tags[seed % len(tags)])})
    rows = found.to_pylist()
    excluded = json.loads(found.coverage.get("exclude_ranks") or "[]")
    assert set(excluded) <= {log.culprit} and not excluded[1:]
    blamed = {ranks for finding, ranks in causes(found) if finding not in _NOT_BLAME}
    if log.state == "ended":
        assert causes(found) == [("nothing_pending", "")]
    elif log.state == "mismatch":
        assert causes(found)[0][0] == "type_mismatch"
        if found.coverage["decided"]:
            assert blamed == {str(log.culprit)}
    else:
        assert not blamed, "a rank that wrote nothing is not known to be missing"
        assert "not_completed" not in {row["finding"] for row in rows}, "others may not have come"
    if log.speakers and max(log.speakers) < log.size - 1 and log.state != "mismatch":
        groups = {row["group_ranks"] for row in rows} - {None}
        assert not groups, "nothing tells how many ranks there are"
    for row in rows:
        if row["finding"] == "waiting" and len(log.speakers) > 1 and log.state == "network":
            assert row["ranks"].count(",") + row["ranks"].count("-") >= 1, "all wait in one call"


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_tags_change_nothing(tmp_path: Path, seed: int) -> None:
    log = made_log(seed)
    said = {
        tag: post_mortem(tmp_path / tag, {"job.log": log.text(tag)}).coverage["verdict"]
        for tag in TAGS
    }
    assert set(said.values()) == {said["none"]}
