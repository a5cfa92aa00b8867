"""The verdict of the replay and the standing of an answer are two things."""

import pytest

from htk.whatif.answer import Answer


def answer(name: str, **facts: float) -> Answer:
    edits = ((name, "x"),)
    return Answer(edits, 100, "trusted", 100, {"compute": 0.02}, effective=(name,), **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (answer("batch"), "tested: within"),
        (answer("batch", samples_ratio=64.0), "outside what was tested"),
        (answer("world", samples_ratio=100.0, devices_ratio=100.0), "outside what was tested"),
        (answer("nobody_measured_this"), "indicative: no measured job tells of nobody_measured"),
        (Answer((), 100, "trusted", 100, effective=()), "as recorded"),
        (Answer((), 100, "refused"), ""),
    ],
)
def test_how_an_answer_stands(given: Answer, words: str) -> None:
    assert given.standing.startswith(words)
    assert bool(given.standing) == bool(words)
