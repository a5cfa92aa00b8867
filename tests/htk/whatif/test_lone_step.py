"""A recording of one step alone is answered, and its intervals hold: recordings of several steps
are cut to one, and what is predicted from that is held against the changed job.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import htk
from htk.faces.cli.main import run_command_line
from htk.quantities.graph.build import steps_at_hand
from htk.traces.trace.opening import open_trace
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from tests.htk.whatif.simulated_job import step_ns, written

JOBS: tuple[dict[str, object], ...] = (
    {"noise": 0.03, "micro_batch": 4},
    {"strategy": "ddp", "gpu": "h100", "micro_batch": 1},  # its host bounds it
    {"inter_gbps": 100.0, "nodes": 2, "gpus_per_node": 1, "micro_batch": 2},
)
SMALL: dict[str, object] = {"layers": 2, "nodes": 1, "gpus_per_node": 2, "seq": 512}
EDITS: tuple[tuple[tuple[str, str], str, int], ...] = (
    (("batch", "2x"), "micro_batch", 2),
    (("accumulation", "3"), "accumulation", 3),
)


def cut(folder: Path, target: Path, step: int) -> Path:
    assert run_command_line(["trim", str(folder), "--steps", str(step), "-o", str(target)]) == 0
    return target


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Answer, float, float]]:
    """Of every job, step and edit: the answer, the truth, and the answer from all steps."""
    return list(answered(tmp_path_factory.mktemp("lone")))


def answered(folder: Path) -> Iterator[tuple[Answer, float, float]]:
    for k, job in enumerate(JOBS):
        whole = written(folder / f"{k}", **(SMALL | job))
        start = build_baseline(open_trace(str(whole)).tables)
        lone = [
            build_baseline(open_trace(str(cut(whole, folder / f"{k}-{step}", step))).tables)
            for step in steps_at_hand(start.tables).numbers[-1:]
        ]
        for edit, name, times in EDITS:
            changed: dict[str, object] = {name: times * int(str(job.get(name, 1)))}
            truth = step_ns(written(folder / f"{k}-{name}", **(SMALL | job | changed)))
            for one in lone:
                yield (
                    predict_answer(one, [edit]),
                    truth,
                    predict_answer(start, [edit]).step_ns or math.nan,
                )


def test_a_step_alone_is_answered_as_closely_as_several(
    answers: list[tuple[Answer, float, float]],
) -> None:
    assert len(answers) == len(JOBS) * len(EDITS)
    for answer, _, of_several in answers:
        assert answer.verdict.startswith("indicative: only one whole step was recorded")
        assert answer.step_ns == pytest.approx(of_several, rel=0.05)


@pytest.mark.parametrize(("place", "share"), [(0, 0.5), (2, 0.9)])
def test_intervals_of_a_step_alone_hold_as_stated(
    answers: list[tuple[Answer, float, float]], place: int, share: float
) -> None:
    held = [
        (answer.intervals[place] or 0) <= truth <= (answer.intervals[place + 1] or 0)
        for answer, truth, _ in answers
    ]
    assert sum(held) >= share * len(held)


def test_intervals_of_a_step_alone_are_wider(tmp_path: Path) -> None:
    whole = htk.open("sample")
    of_several = predict_answer(build_baseline(whole.tables), [("batch", "2x")])
    alone = predict_answer(build_baseline(whole.sel(steps=[11]).tables), [("batch", "2x")])
    assert alone.sigma > 1.5 * of_several.sigma


def test_a_predicted_trace_predicts_the_way_back(tmp_path: Path) -> None:
    asked = htk.whatif("sample")
    asked.batch("2x").write(tmp_path / "predicted")
    back = htk.whatif(str(tmp_path / "predicted")).batch("0.5x").answers()[0]
    assert back.verdict == "trusted"
    assert (back.step_ns, back.names) == (asked.stage.step_ns, ())
