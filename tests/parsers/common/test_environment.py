"""Facts on a job that a file claims: those on the list are believed, of a bounded length."""

import json

from htk.parsers.common.environment import listed_environment


def test_what_is_on_the_list_is_kept() -> None:
    facts = {"slurm_job_id": "4711", "git_commit": "a" * 40}
    claimed = {"password": "x", **facts, "slurm_partition": "p" * 500, "slurm_nodes": 3}
    kept = listed_environment(claimed)
    assert kept is not None and json.loads(kept) == facts and " " not in kept


def test_what_says_nothing_is_null() -> None:
    for value in (None, 7, [], "slurm_job_id", {}, {"password": "x"}):
        assert listed_environment(value) is None
