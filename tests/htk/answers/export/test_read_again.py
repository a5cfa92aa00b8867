"""What is written, read again: counts, sums, links and nesting as they were, for every recording at
hand and every kind of trace that is written."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import htk
from htk.base.errors import HtkError
from htk.faces.cli.main import htk as main
from htk.faces.notebook.session import Session

SAMPLES = Path(__file__).parents[4] / "sample_traces"
FORMS = {
    "chrome": ("convert", "--to", "chrome"),
    "hta": ("convert", "--to", "hta"),
    "perfetto": ("convert", "--to", "perfetto"),
    "trim": ("trim",),
    "scrub": ("scrub",),
}
_MOST_BYTES = 60 << 20  # of a recording: larger ones take minutes
_COUNTED = ("kernels", "cpu_ops", "annotations", "launches", "syncs", "python_calls")
_TIMES = ("rank", "busy_ns", "compute_ns", "comm_ns", "memory_ns", "total_ns")


def _facts(path: Path) -> dict[str, Any]:
    trace = htk.open(path)
    tables = trace.tables
    times = trace.ask("time_breakdown").to_pylist()
    depth = pc.sum(tables["op_links"]["depth"]).as_py()
    linked = pc.sum(pc.is_valid(tables["kernel_links"]["launch_row"])).as_py()
    return {
        "times": sorted([str(row[name]) for name in _TIMES] for row in times),
        "rows": {name: tables[name].num_rows for name in _COUNTED},
        "depth of operators": depth,
        "linked": linked,
        "aligned": any(tables["rank_clocks"]["aligned"].to_pylist()),
        "of PyTorch": {file.format for file in trace.files} == {"kineto"},
    }


def _check(recording: Path, form: str, folder: Path) -> None:
    """Hold what is written to what was recorded."""
    before = _facts(recording)
    command = [*FORMS[form], str(recording), "-o", str(folder), "--no-cache"]
    outcome = CliRunner().invoke(main, command, catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    after = _facts(folder)
    moved = {"aligned", "of PyTorch"}
    if form in ("chrome", "perfetto") and before["aligned"]:
        moved.add("times")  # ranks are put on one clock
    assert [k for k in before if k not in moved and before[k] != after[k]] == []


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_is_read_again_as_it_was(form: str, tmp_path: Path) -> None:
    _check(SAMPLES / "kineto/rank1.pt.trace.json", form, tmp_path / "out")


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_public_recordings_are_read_again_as_they_were(
    form: str, tmp_path: Path, shared: Path
) -> None:
    checked = 0
    for number, recording in enumerate(sorted((shared / "traces").glob("*/*"))):
        files = [f for f in (*recording.rglob("*"), recording) if f.is_file()]
        if sum(f.stat().st_size for f in files) > _MOST_BYTES:
            continue
        try:
            trace: Session = htk.open(recording)
            trace.ask("time_breakdown")
        except HtkError:
            continue  # of several jobs, without GPU work, or no trace
        _check(recording, form, tmp_path / str(number))
        checked += 1
    assert checked > 20
