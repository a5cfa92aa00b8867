"""What is recorded of a job: what is listed, and never anything else."""

import json
from pathlib import Path

import pytest

from htk.base.schema.environment_facts import FACTS
from htk.parsers.kineto.facts import read_facts
from htk.recording.environment import recorded_environment
from htk.traces.trace.opening import open_trace

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def repository(folder: Path, head: str) -> Path:
    (folder / ".git/refs/heads/team").mkdir(parents=True)
    (folder / ".git/HEAD").write_text(head)
    return folder


def test_only_listed_variables_are_read(tmp_path: Path) -> None:
    names = [name for variables in FACTS.values() for name in variables]
    secrets = {"AWS_SECRET_ACCESS_KEY": "s1", "SLURM_JWT": "s2", "KUBERNETES_TOKEN": "s3"}
    secrets |= {"GITHUB_TOKEN": "s4", "WANDB_API_KEY": "s5"}
    variables = {name: f"value of {name}" for name in names} | secrets
    read = recorded_environment(variables, tmp_path)
    assert set(read) == set(FACTS)
    assert not {value for value in read.values() if value in secrets.values()}
    assert read["slurm_job_id"] == "value of SLURM_JOB_ID"
    assert read["git_commit"] == "value of GIT_COMMIT", "the first that is set"


def test_values_are_short_and_print(tmp_path: Path) -> None:
    read = recorded_environment({"SLURM_JOB_NAME": "a\x1b[2J\n" + "b" * 500}, tmp_path)
    assert read == {"slurm_job_name": "a[2J" + "b" * 196}


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_comes_from_gits_files(tmp_path: Path, packed: bool) -> None:
    folder = repository(tmp_path, "ref: refs/heads/team/fast\n")
    (folder / "src").mkdir()
    assert recorded_environment({}, folder / "src") == {}, "no commit yet"
    if packed:
        lines = f"# pack-refs\n{OTHER} refs/heads/fast\n{COMMIT} refs/heads/team/fast\n"
        (folder / ".git/packed-refs").write_text(lines)
    else:
        (folder / ".git/refs/heads/team/fast").write_text(f"{COMMIT}\n")
    expected = {"git_commit": COMMIT, "git_branch": "team/fast"}
    assert recorded_environment({}, folder / "src") == expected
    assert recorded_environment({"GITHUB_SHA": OTHER}, folder) == {"git_commit": OTHER}


def test_work_trees_and_single_commits(tmp_path: Path) -> None:
    folder = repository(tmp_path / "main", f"{COMMIT}\n")
    assert recorded_environment({}, folder) == {"git_commit": COMMIT}
    tree = folder / ".git/worktrees/other"
    tree.mkdir(parents=True)
    (tree / "HEAD").write_text("ref: refs/heads/team/slow")
    (tree / "commondir").write_text("../..\n")
    (folder / ".git/refs/heads/team/slow").write_text(OTHER)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.git").write_text(f"gitdir: {tree}\n")
    read = recorded_environment({}, tmp_path / "other")
    assert read == {"git_commit": OTHER, "git_branch": "team/slow"}


@pytest.mark.parametrize("head", ["", "ref: ../../secret", "ref: refs/heads/gone", "x" * 99])
def test_a_strange_repository_names_no_commit(tmp_path: Path, head: str) -> None:
    assert recorded_environment({}, repository(tmp_path, head)) == {}


def test_a_profile_holds_the_facts_and_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    import htk

    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("GIT_COMMIT", COMMIT)
    with htk.capture(tmp_path, wait=0, warmup=0, active=2) as recorded:
        for _ in range(2):
            recorded.step()
    (text,) = open_trace(tmp_path).tables["ranks"]["environment"].to_pylist()
    assert json.loads(text)["slurm_job_id"] == "4711"
    assert json.loads(text)["git_commit"] == COMMIT
    hostile = {"slurm_job_id": ["x"], "git_commit": COMMIT, "other": "y", "git_branch": "z" * 999}
    assert read_facts({"htk_environment": hostile})["environment"] == f'{{"git_commit":"{COMMIT}"}}'
    for wrong in ("text", 3, [], {"other": "x"}):
        assert read_facts({"htk_environment": wrong})["environment"] is None
