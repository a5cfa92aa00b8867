"""The GitHub Action's script, run as the action runs it; a `gh` notes what it is asked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml  # type: ignore[import-untyped]

from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job

ACTION = Path(__file__).parents[1] / ".github" / "actions" / "gate"
_GH = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case "$*" in *--paginate*) echo "$OWN_COMMENT";; esac
"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    config = Config(model="gpt3-126m", layers=1, gpus_per_node=2, steps=5)
    simulate_job(config, folder / "base")
    simulate_job(
        Config(**{**config.__dict__, "plants": ("straggler",)}), folder / "slow; touch pwned"
    )
    return folder


def gate(folder: Path, base: Path, new: Path, **inputs: str) -> dict[str, str]:
    """Run the script as a step of a pull request's job; return the step's outputs."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("htk", f'#!/bin/sh\nexec "{sys.executable}" -m htk "$@"\n'), ("gh", _GH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    defaults = {
        name: str(known.get("default", ""))
        for name, known in yaml.safe_load((ACTION / "action.yml").read_text())["inputs"].items()
    }
    values = defaults | {"base": str(base), "new": str(new)} | inputs
    env = {f"GATE_{name.upper().replace('-', '_')}": value for name, value in values.items()}
    env |= {
        "GATE_PULL_REQUEST": "7",
        "GATE_FOLDER": str(folder / "out put"),
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_REPOSITORY": "team/model",
        "CALLS": str(folder / "calls"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    subprocess.run(
        [ACTION / "gate"], env={"OWN_COMMENT": ""} | dict(os.environ) | env, cwd=folder, check=True
    )
    return dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())


def test_a_regression_fails_the_gate_and_is_commented_once(
    recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_COMMENT", "4711")
    rules = "\n  step_time>5%\n\n  idle>5%  \n"
    outputs = gate(
        tmp_path, recordings / "base", recordings / "slow; touch pwned", rules=rules, report="true"
    )
    assert (outputs["code"], outputs["verdict"]) == ("4", "failed")
    folder = Path(outputs["folder"])
    suite = ElementTree.fromstring((folder / "gate.xml").read_bytes())[0]
    counts = {name: suite.attrib[name] for name in ("tests", "failures", "skipped")}
    assert counts == {"tests": "2", "failures": "1", "skipped": "1"}
    cases = {case.attrib["name"]: [part.tag for part in case] for case in suite}
    assert "failure" in cases["step_time>5%"]
    assert "skipped" in cases["idle>5%"], "noise leaves it open"
    assert "1 of 2 limits exceeded" in (tmp_path / "summary.md").read_text()
    assert "<html" in (folder / "report.html").read_text()[:200]
    searched, written = (tmp_path / "calls").read_text().splitlines()
    assert "repos/team/model/issues/7/comments --paginate" in searched
    assert written.startswith("api -X PATCH repos/team/model/issues/comments/4711 -F body=@")
    assert not (tmp_path / "pwned").exists(), "an input is never run"


def test_equal_recordings_pass_and_a_first_comment_is_made(
    recordings: Path, tmp_path: Path
) -> None:
    base = recordings / "base"
    outputs = gate(tmp_path, base, base, rules="step_time>5%", report="false")
    assert (outputs["code"], outputs["verdict"]) == ("0", "passed")
    _, written = (tmp_path / "calls").read_text().splitlines()
    assert written.startswith("api repos/team/model/issues/7/comments -F body=@")
    assert not (Path(outputs["folder"]) / "report.html").exists()


def test_a_recording_that_is_not_there_is_an_error_not_a_verdict(
    recordings: Path, tmp_path: Path
) -> None:
    outputs = gate(tmp_path, recordings / "base", tmp_path / "none", rules="idle>5%")
    assert (outputs["code"], outputs["verdict"]) == ("3", "error")


def test_every_input_reaches_the_script_by_a_variable() -> None:
    text = (ACTION / "action.yml").read_text()
    action = yaml.safe_load(text)
    (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "gate")
    assert "${{" not in step["run"]
    script = (ACTION / "gate").read_text()
    passed = {name for name in step["env"] if name.startswith("GATE_")}
    assert passed == set(re.findall(r"GATE_[A-Z_]+", script))
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(action["runs"])))
    assert used == set(action["inputs"])
