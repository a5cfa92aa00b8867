"""The page of public traces says what the what-ifs answer."""

from pathlib import Path

import pytest

from bench.verdicts import judged, page, recordings, verdict_on
from htk.traces.trace.opening import open_trace
from tests.kineto_file import Event, kernel, launch, op, step, write

PAGE = Path(__file__).parents[2] / "docs/public_traces.md"


def listed() -> dict[str, str]:
    """Return the verdicts of the page by recording."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {name: verdict for name, verdict, *_ in cells[1:]}


@pytest.mark.nightly
def test_the_page_holds_every_recording_and_its_verdict(shared: Path) -> None:
    """If not: python bench/verdicts.py FOLDER -o docs/public_traces.md"""
    now = {name: verdict_on(trace)[0] for name, trace in recordings(shared / "traces")}
    assert now == listed()


def test_three_of_four_public_traces_are_answered() -> None:
    verdicts = list(listed().values())
    asked = [verdict for verdict in verdicts if verdict in ("trusted", "indicative", "refused")]
    assert len(asked) > 20
    assert asked.count("refused") <= len(asked) / 4


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        (
            [op("aten::mm", 0, 3), launch(1, 0, 2), kernel("a", 3, 9, 1), step(0, 0, 20)],
            "indicative",
        ),
        (
            [op("aten::mm", 0, 3), launch(1, 0, 2), kernel("a", 3, 9, 1), kernel("b", 12, 90)],
            "refused",
        ),
        ([kernel("a", 3, 9, 1)], "none"),
    ],
)
def test_a_recording_is_judged(tmp_path: Path, events: list[Event], verdict: str) -> None:
    row = judged("x", open_trace(str(write(tmp_path / "t.json", *events))))
    assert f"| t.json | {verdict} | " in page(tmp_path)
    assert row.verdict == verdict
    assert (row.answered > 0) == (verdict == "indicative")
