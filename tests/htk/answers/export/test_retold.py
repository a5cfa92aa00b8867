"""What other tools recorded, trimmed and scrubbed: the same figures as before."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import htk
from htk.answers.export.rewrite import kineto_parts
from htk.base.errors import TraceError
from htk.faces.cli.commands.convert import command as convert
from htk.faces.cli.commands.scrub import command as scrub
from htk.faces.cli.commands.trim import command as trim
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[4] / "sample_traces"
RECORDINGS = ["nsight", "rocpd", "rocprof_json", "rocprof_perfetto", "xplane", "kineto_perfetto"]


def _write(command: object, *arguments: str) -> str:
    outcome = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def _times(trace: Trace) -> list[list[int]]:
    columns = ("rank", "device", "total_ns", "busy_ns", "compute_ns", "comm_ns", "memory_ns")
    answer = trace.time_breakdown()  # type: ignore[attr-defined]
    return [[row[name] for name in columns] for row in answer]


@pytest.mark.parametrize("recording", thinned(RECORDINGS))
def test_a_trim_is_the_selection(recording: str, tmp_path: Path) -> None:
    path = SAMPLES / recording
    whole = htk.open(path)
    half = _times(whole)[0][2] // 2
    _write(trim, str(path), "--to", f"{half}ns", "-o", str(tmp_path / "out"), "--no-cache")
    selected = whole.sel(to_ns=half)
    written = htk.open(tmp_path / "out")
    assert _times(written) == _times(selected)
    for trace in (written, selected):
        assert trace.tables["kernels"].num_rows == selected.tables["kernels"].num_rows


@pytest.mark.parametrize("recording", RECORDINGS)
def test_a_scrubbed_copy_keeps_the_times_and_no_name(recording: str, tmp_path: Path) -> None:
    path = SAMPLES / recording
    whole = htk.open(path)
    said = _write(scrub, str(path), "-o", str(tmp_path / "out"), "--no-cache")
    assert "none of them is in what was written" in said
    written = htk.open(tmp_path / "out")
    assert _times(written) == _times(whole)
    for table in ("kernels", "launches", "cpu_ops", "python_calls"):
        assert written.tables[table].num_rows == whole.tables[table].num_rows


def test_several_ranks_in_one_trace_for_other_viewers(tmp_path: Path) -> None:
    path = SAMPLES / "nsight"
    _write(convert, "--to", "chrome", str(path), "-o", str(tmp_path / "out"), "--no-cache")
    whole = htk.open(path)
    merged = htk.open(tmp_path / "out")
    assert merged.ranks == whole.ranks
    assert merged.tables["kernels"].num_rows == whole.tables["kernels"].num_rows


def test_a_folder_that_holds_a_recording_takes_no_other(tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    _write(trim, str(SAMPLES / "rocpd"), "-o", target, "--no-cache")
    for command in (trim, scrub):
        outcome = CliRunner().invoke(command, [str(SAMPLES / "xplane"), "-o", target])
        assert "give a new or empty folder" in str(outcome.exception)
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_what_no_file_of_pytorch_holds_is_not_written_as_nothing() -> None:
    with pytest.raises(TraceError, match="no PyTorch profiler trace among the files"):
        kineto_parts(htk.open(SAMPLES / "rocpd").files)
