"""The page of public traces says what the what-ifs answer."""

from pathlib import Path

import pytest

from bench.verdicts import judged, page
from htk.trace.opening import open_trace
from tests.kineto_file import kernel, launch, op, step, write

PAGE = Path(__file__).parents[2] / "docs/public_traces.md"


def test_the_page_is_what_the_command_writes(shared: Path) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(shared / "traces")


def test_three_of_four_public_traces_are_answered() -> None:
    verdicts = [line.split(" | ")[1] for line in PAGE.read_text().splitlines() if line[:3] == "| h"]
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
def test_a_recording_is_judged(
    tmp_path: Path, events: list[dict[str, object]], verdict: str
) -> None:
    row = judged("x", open_trace(str(write(tmp_path / "t.json", *events))))
    assert row.verdict == verdict
    assert (row.answered > 0) == (verdict == "indicative")
