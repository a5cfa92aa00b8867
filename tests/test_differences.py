"""docs/differences.md: each line names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/differences.md").read_text()
NAMED = sorted(set(re.findall(r"`(?:tests/\S+/)?(test_\w+)(\.py)?`", TEXT)))


def test_every_line_names_what_holds_it() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "Held by" not in line]
    assert len(rows) > 20 and all("`test" in row.rpartition(" | ")[2] for row in rows)


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_what_it_names_exists(name: str, file: str) -> None:
    files = list((ROOT / "tests").rglob("*.py"))
    if file:
        assert any(f.name == f"{name}.py" for f in files)
    else:
        assert any(f"def {name}(" in f.read_text() for f in files)
