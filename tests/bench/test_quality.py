"""The page of quality says what its commands measured; the commands measure what they say."""

import random
from pathlib import Path

import pytest

from bench import damage, kills, quality, soak
from bench.licences import BINDING, licence_of, needed


def test_the_page_is_what_the_figures_say() -> None:
    """If not: python bench/quality.py"""
    assert quality.PAGE.read_text(encoding="utf-8") == quality.page()


@pytest.mark.nightly
def test_killed_readers_leave_every_answer_right(tmp_path: Path) -> None:
    """Two versions at once; disks that are full, slow or stall, and one without a folder."""
    figures = kills.run(tmp_path, 2, 2, random.Random(5))
    assert figures["kills"] >= 2 and figures["answers"] > 0
    assert figures["wrong_answers"] == 0 and figures["swept"]
    assert figures["disks"] == {"full": True, "no_folder": True, "slow": True}
    assert figures["wrong_after_stalls"] == 0


@pytest.mark.parametrize("name", ["cut short", "a brace put in", "compressed, a bit flipped"])
def test_damage_is_done_and_measured(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = b'{"ph":"X","name":"a","ts":1.5,"dur":2},'
    trace = tmp_path / "t.json"
    trace.write_bytes(b'{"traceEvents":[' + event * 400 + b'{"ph":"i"}]}')
    monkeypatch.setattr(damage, "DAMAGES", {name: damage.DAMAGES[name]})
    figures = damage.measure(trace, 3)
    assert figures["events"] == 401
    (row,) = figures["rows"]
    assert row["differ"] == row["silent"] == 0 and row["kept_pct_min"] <= row["kept_pct_max"] <= 100
    assert name != "cut short" or row["kept_pct_min"] < 100


def test_every_kind_of_damage_changes_the_file() -> None:
    dice = random.Random(2)
    event = b'{"ph":"X","ts":%d,"dur":%d},'
    events = [event % (dice.getrandbits(60), dice.getrandbits(30)) for _ in range(2000)]
    text = b'{"traceEvents":[' + b"".join(events) + b"{}]}"
    for name, change in damage.DAMAGES.items():
        assert change(text, random.Random(1)) != text, name


@pytest.mark.parametrize(
    ("held", "flat"), [([100, 300, 300, 310] * 9, True), (list(range(100, 2000, 20)), False)]
)
def test_memory_is_flat_once_caches_are_full(held: list[float], flat: bool) -> None:
    assert soak.is_flat(sorted(held)) == flat


def test_dependencies_state_licences_that_let_them_be_passed_on() -> None:
    packages = needed("all")
    assert {"numpy", "pyarrow", "duckdb"} <= set(packages)
    assert not [n for n, p in packages.items() if BINDING.search(licence_of(p))]
