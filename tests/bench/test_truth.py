"""Every answer about one GPU equals what the makers of random recordings know."""

from pathlib import Path

import pytest

from bench.truth.compare import NOT_ASKED, QUESTIONS, differences, selected_differences
from bench.truth.made import make_recording
from htk.analyses import ANALYSES
from htk.verdicts.verify.outcome import DIFFERS, list_outcomes
from htk.verdicts.verify.subject import Subject
from tests.thinned import thinned


@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_random_recordings_are_answered_rightly(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "recording.json"
    compared, different = differences(make_recording(seed, path), path)
    assert different == []
    assert compared > 20
    assert selected_differences(path)[1] == []


@pytest.mark.parametrize("seed", thinned([1, 5, 6, 18]))
def test_the_second_reading_of_verify_agrees_with_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two readings that share no code, where spans begin together and ranges overlap."""
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    make_recording(seed, path := tmp_path / "recording.json")
    states = {outcome.state for outcome in list_outcomes(Subject(str(path)))}
    assert "ok" in states and DIFFERS not in states


def test_the_recordings_hold_what_answers_may_stumble_over(tmp_path: Path) -> None:
    """Nothing is learnt from recordings that lack it."""
    made = [make_recording(seed, tmp_path / "recording.json") for seed in range(20)]
    activities = [a for recording in made for a in recording.activities]
    operators = [op for recording in made for op in recording.operators]
    assert sum(a.in_graph for a in activities) > 20
    assert sum(not a.length for a in activities) > 20
    assert any(a.operator is None and a.python is not None for a in activities)
    assert any(a.operator is not None and a.operator.forward is not None for a in activities)
    assert any(a.carried_in for a in activities)
    assert {a.device for a in activities} == {0, 1}
    assert {a.sort for a in activities} == {"kernel", "copy", "set"}
    assert any("Backward" in op.name for op in operators)
    assert any(len({e.device for e in recording.memory}) == 2 for recording in made)


def test_every_question_is_asked_or_it_is_said_why_not() -> None:
    asked = {question.name for question in QUESTIONS}
    rooms = ("analyses.comm", "analyses.jobs")
    of_many = {name for name, entry in ANALYSES.items() if entry.module.startswith(rooms)}
    assert asked | set(NOT_ASKED) | of_many == set(ANALYSES)
    assert not asked & (set(NOT_ASKED) | of_many)


def test_a_wrong_number_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "recording.json"
    recording = make_recording(0, path)
    recording.activities[0].end += 1
    found = differences(recording, path)[1]
    asked = {line.partition(" ")[0] for line in found}
    assert {"kernel_top", "launch_stats"} <= asked
    assert len({question.name for question in QUESTIONS}) >= 19
