"""Smaller traces: the chosen events, as they were recorded."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import htk
from htk.faces.cli.commands.trim import command
from htk.faces.cli.main import htk as main
from htk.traces.trace.opening import SAMPLE
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write


def _trim(*args: str) -> None:
    outcome = CliRunner().invoke(command, [*args], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output


def _events(folder: Path) -> list[dict[str, object]]:
    (file,) = folder.iterdir()
    found: list[dict[str, object]] = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two steps of 10 us; the first launches a kernel that runs in the second's time."""
    flow = {"ph": "s", "id": 1, "pid": 100, "tid": 1, "ts": 2, "cat": "ac2g", "name": "ac2g"}
    events = (
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "p"}},
        step(1, 0, 10),
        op("aten::one", 1, 3),
        launch(1, 2),
        flow,
        kernel("late", 12, 3, 1),
        step(2, 10, 10),
        span("outer", 8, 4),
        op("aten::two", 11, 3),
        launch(2, 12),
        {**flow, "id": 2, "ts": 12},
        kernel("next", 16, 2, 2),
    )
    return write(tmp_path / "a.json", *events, **of_rank(0))


def test_a_step_takes_what_it_launched(trace: Path, tmp_path: Path) -> None:
    _trim(str(trace), "--steps", "1", "-o", str(tmp_path / "out"), "--no-cache")
    names = [(e["name"], e.get("id")) for e in _events(tmp_path / "out")]
    assert names == [
        ("process_name", None),
        ("ProfilerStep#1", None),
        ("aten::one", None),
        ("cudaLaunchKernel", None),
        ("ac2g", 1),
        ("late", None),
        ("outer", None),  # it begins in the first step
    ]


def test_a_step_leaves_what_others_launched(trace: Path, tmp_path: Path) -> None:
    _trim(str(trace), "--steps", "2", "-o", str(tmp_path / "out"), "--no-cache")
    names = {e["name"] for e in _events(tmp_path / "out")}
    assert "late" not in names and {"next", "outer", "aten::two", "ProfilerStep#2"} <= names


def test_times_narrow_too(trace: Path, tmp_path: Path) -> None:
    _trim(str(trace), "--from", "11us", "--to", "13us", "-o", str(tmp_path / "out"), "--no-cache")
    names = {e["name"] for e in _events(tmp_path / "out")}
    assert {"aten::two", "next"} <= names and "aten::one" not in names


def test_a_missing_step_says_which_there_are(trace: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(
        command, [str(trace), "--steps", "7", "-o", str(tmp_path / "out"), "--no-cache"]
    )
    assert "of 1..2" in str(outcome.exception)


def test_the_sample_trimmed_answers_as_the_sample_narrowed(tmp_path: Path) -> None:
    whole = htk.open("sample")
    steps = sorted({row["step"] for row in whole.step_times().to_pylist()})
    _trim("sample", "--steps", str(steps[-1]), "--ranks", "1", "-o", str(tmp_path / "out"))
    part = htk.open(tmp_path / "out")
    assert part.ranks == [1]
    narrowed = whole.sel(ranks=[1], steps=[steps[-1]])
    assert part.kernel_top(n=1000).to_pylist() == narrowed.kernel_top(n=1000).to_pylist()
    assert part.launch_stats().to_pylist() == narrowed.launch_stats().to_pylist()
    linked = part.tables["kernel_links"]
    assert linked["launch_row"].null_count == 0


@pytest.mark.parametrize("ranks", [[1], [0, 1]])
def test_a_file_of_several_ranks_is_written_once_with_the_chosen_ones(
    ranks: list[int], tmp_path: Path
) -> None:
    merge = ["convert", str(SAMPLE), "--format", "chrome", "-o", str(tmp_path / "merged")]
    assert CliRunner().invoke(main, merge).exit_code == 0
    merged = htk.open(tmp_path / "merged")
    step = merged.step_times().to_pylist()[-1]["step"]
    _trim(
        str(tmp_path / "merged"),
        "--ranks",
        ",".join(map(str, ranks)),
        "--steps",
        str(step),
        "-o",
        f"{tmp_path}/out",
    )
    part = htk.open(tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 1
    events = {row["rank"]: row["events"] for row in part.tables.ranks.to_pylist()}
    assert [rank for rank, count in events.items() if count] == ranks
    narrowed = merged.sel(ranks=ranks, steps=[step])
    part = part.sel(ranks=ranks)
    assert part.kernel_top(n=1000).to_pylist() == narrowed.kernel_top(n=1000).to_pylist()
    assert part.launch_stats().to_pylist() == narrowed.launch_stats().to_pylist()


def test_a_file_of_several_ranks_is_a_file_of_each_for_hta(tmp_path: Path) -> None:
    merge = ["convert", str(SAMPLE), "--format", "chrome", "-o", str(tmp_path / "merged")]
    assert CliRunner().invoke(main, merge).exit_code == 0
    asked = ["convert", str(tmp_path / "merged"), "--format", "hta", "-o", str(tmp_path / "hta")]
    assert CliRunner().invoke(main, asked).exit_code == 0
    merged = htk.open(tmp_path / "merged")
    for rank in merged.ranks:
        own = htk.open(tmp_path / "hta" / f"rank-{rank}.json.gz").sel(ranks=[rank])
        rows = merged.sel(ranks=[rank]).kernel_top(n=1000).to_pylist()
        assert own.kernel_top(n=1000).to_pylist() == rows


def test_waits_whose_calls_were_not_recorded_are_cut_by_time(tmp_path: Path) -> None:
    waited = {"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 9, "device": 0}
    wait = {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "dur": 1}
    marks = [{**wait, "ts": start, "args": waited} for start in (3, 13)]
    path = write(tmp_path / "a.json", step(1, 0, 10), step(2, 10, 10), *marks, **of_rank(0))
    for steps, count in ((None, 2), ("1", 1), ("2", 1)):
        out = tmp_path / f"out{steps}"
        _trim(str(path), *(["--steps", steps] if steps else []), "-o", str(out), "--no-cache")
        assert [event["name"] for event in _events(out)].count("Stream Sync") == count
