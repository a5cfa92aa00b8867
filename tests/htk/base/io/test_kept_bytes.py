"""A cache is seldom counted, and its limit holds all the same."""

from pathlib import Path

import pyarrow as pa
import pytest

from htk.base.io.kept_bytes import NAME
from htk.base.io.store import Store
from tests.htk.base.io.parsed_tables import parsed


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The caches that were counted, in turn."""
    roots: list[Path] = []
    sweep = Store._sweep_leftovers

    def noted(store: Store, older_than_s: float) -> int:
        roots.append(store.root)
        return sweep(store, older_than_s)

    monkeypatch.setattr(Store, "_sweep_leftovers", noted)
    return roots


def test_processes_that_follow_need_no_count(tmp_path: Path, counts: list[Path]) -> None:
    for key in "abcd":
        Store(tmp_path).save(key, parsed(300))
    assert len(counts) == 1


@pytest.mark.parametrize("note", ["", "of no number", "7200 1", "9" * 70_000])
def test_a_note_that_tells_nothing_costs_a_count(
    tmp_path: Path, counts: list[Path], note: str
) -> None:
    Store(tmp_path).save("a", parsed(300))
    (tmp_path / NAME).write_text(note)
    Store(tmp_path).save("b", parsed(300))
    Store(tmp_path).save("c", parsed(300))
    assert len(counts) == 2


def test_tables_that_were_derived_meanwhile_fill_the_cache(tmp_path: Path) -> None:
    entry = Store(tmp_path).save("a", parsed(300))
    size = Store(tmp_path).size_bytes("a")
    entry.derived("many", lambda: pa.table({"x": list(range(size))}))
    Store(tmp_path, limit_bytes=5 * size).save("b", parsed(300))
    assert [kept.folder.name for kept in Store(tmp_path).list()] == ["b"]
