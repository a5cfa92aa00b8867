"""What the guide of what-ifs shows in Python runs as it stands there."""

import re
from pathlib import Path

import pytest

import htk
from tests.htk.whatif.simulated_job import written

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/whatif.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 1


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_answer(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, micro_batch in (("latest", 2), ("new", 4)):
        written(tmp_path / "runs" / name, layers=2, seq=512, micro_batch=micro_batch)
    monkeypatch.chdir(tmp_path)
    given = {"htk": htk, "trace": htk.open("runs/latest")}
    row = eval(example.strip(), given).to_pylist()[0]
    assert row["step_time_ns"] > 0
