"""`htk history` and `htk diff --last-good`, as their user sees them."""

import json
from pathlib import Path

import pytest

from htk.faces.cli.main import run_command_line
from tests.htk.verdicts.history.recorded_runs import BASE_NS, recording
from tests.shown_lines import masked, shown

DAY_NS = 86_400_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days of a run that takes 100 us a step, and from the seventh on 110."""
    folder = tmp_path_factory.mktemp("history")
    for day in range(10):
        step_us = (100 if day < 6 else 110) + day % 2
        path = recording(folder / f"day{day}", step_us, BASE_NS + day * DAY_NS)
        tags = f"commit=c{day},model=m"
        assert (
            run_command_line(
                ["history", "add", str(path), "--store", str(folder / "h"), "--tags", tags]
            )
            == 0
        )
    return folder / "h"


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run_command_line(list(words)) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_runs_are_listed_with_lines_and_changes(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_HISTORY", str(store))
    text = output(capsys, "history")
    assert "2026-01-07 00:00  day6  commit=c6, model=m" in text
    (line,) = [line for line in text.splitlines() if line.startswith("step time  ")]
    assert "▁▂▁▂▁▂▇█▇█" in line and "100 µs … 111 µs" in line
    (change,) = [line for line in text.splitlines() if "confidence" in line]
    assert "(+10.0 %) since" in change and "commit c6)" in change
    rows = json.loads(
        output(capsys, "history", "list", "--tags", "commit=c[35]", "--format", "json")
    )
    assert [row["name"] for row in rows["rows"]] == ["day3", "day5"]
    assert "day3" not in output(capsys, "history", "list", "--since", "2026-01-05")


def test_the_page_shows_what_is_printed_but_for_the_figures(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_HISTORY", str(tmp_path / "history"))
    path = str(recording(tmp_path / "monday"))
    added = output(capsys, "history", "add", path, "--tags", "commit=3f9a2c1,model=llama-8b")
    (line,) = shown("history.md", "htk history add runs/monday/")
    assert masked(added.strip()) == masked(line)
    changes = output(capsys, "history", "changes", "--store", str(store))
    (line,) = shown("history.md", "htk history changes --tags")
    assert masked(line) in map(masked, changes.splitlines())


def test_changes_are_said_and_written(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "history", "changes", "--store", str(store), "--format", "json")
    (row,) = json.loads(text)["rows"]
    assert row["metric"] == "step_time" and row["recorded_at"].startswith("2026-01-07")
    assert row["change_pct"] == pytest.approx(9.95, abs=0.1) and row["confidence_pct"] > 99.9
    text = output(capsys, "history", "changes", "--store", str(store), "--before", "2026-01-07")
    assert "nothing changed by more than chance" in text


def test_the_last_good_runs_are_the_base_of_a_gate(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(6):
        assert "is good" in output(
            capsys, "history", "mark", f"day{day}", "--good", "--store", str(store)
        )
    gate = ["diff", "--last-good", "5", "--store", str(store), "--fail-on", "step_time>5%"]
    slow = recording(tmp_path / "slow", 112, BASE_NS + 20 * DAY_NS)
    text = output(capsys, *gate, str(slow), code=4)
    assert "(day1)" in text and "(day5)" in text and "(day0)" not in text
    usual = recording(tmp_path / "usual", 100, BASE_NS + 21 * DAY_NS)
    summary = tmp_path / "gate.md"
    assert "passed" in output(capsys, *gate, str(usual), "--md", str(summary))
    assert "5 runs, 2 ranks" in summary.read_text()
    assert "takes one recording" in output(capsys, *gate, str(slow), str(usual), code=2)


def test_two_runs_are_compared_without_their_recordings(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(
        capsys, "history", "compare", "day0", "day9", "--store", str(store), "--format", "json"
    )
    rows = {(row["by"], row["name"]): row for row in json.loads(text)["rows"]}
    assert rows["kernel", "ampere_bf16_gemm"]["diff_pct"] == pytest.approx(11, abs=0.1)
    assert "no run is called so" in output(
        capsys, "history", "compare", "day0", "gone", "--store", str(store), code=2
    )


def test_what_is_left_out_is_said(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / f"{1:016x}.parquet").write_bytes(b"x")
    text = output(capsys, "history", "list", "--store", str(tmp_path))
    assert f"left out runs/{1:016x}.parquet" in text and "nothing found" in text
    assert "say --good" in output(capsys, "history", "mark", "x", "--store", str(store), code=2)
    assert "is not a tag" in output(
        capsys, "history", "add", "sample", "--tags", "x", "--store", str(store), code=2
    )
