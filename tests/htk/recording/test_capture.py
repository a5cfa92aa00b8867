"""Recording with torch on the CPU, and opening what was recorded."""

import os
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import UsageError
from htk.recording.capture import FLIGHT_RECORDER, _choose_ranks

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that a recording sets are gone afterwards."""
    for name in [n for n in os.environ if n.startswith(("TORCH_FR", "TORCH_NCCL", "NCCL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", os.environ.copy())


def trained(folder: Path, steps: int, **options: Any) -> Any:
    weight = torch.ones(8, 8, requires_grad=True)
    with htk.capture(folder, **options) as recording:
        for _ in range(steps):
            (weight @ weight).sum().backward()
            recording.step()
    return recording


def test_each_time_is_a_file_that_opens(tmp_path: Path) -> None:
    made = trained(tmp_path, 8, wait=1, warmup=1, active=2, repeat=2)
    assert [p.name for p in made.paths] == [
        "rank00000.0.pt.trace.json.gz", "rank00000.1.pt.trace.json.gz",
    ]  # fmt: skip
    trace = htk.open(made.paths[0])
    steps = trace.tables["annotations"]["step"].drop_null().to_pylist()
    assert len(set(steps)) == 2
    ops = {row["op"] for row in trace.op_breakdown(n=0).to_pylist()}
    assert "aten::mm" in ops
    dims = [d for d in trace.tables["cpu_ops"]["input_dims"].to_pylist() if d]
    assert dims, "shapes are recorded"


def test_a_rank_that_is_not_chosen_records_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    made = trained(tmp_path / "none", 3, ranks=[0])
    assert (made.rank, made.recorded, made.paths) == (5, False, [])
    assert not (tmp_path / "none").exists()
    some = trained(tmp_path, 3, wait=0, warmup=1, active=2, ranks=[5])
    assert [p.name for p in some.paths] == ["rank00005.0.pt.trace.json.gz"]


def test_ranks_are_spread_evenly() -> None:
    assert _choose_ranks(4, 16) == {0, 4, 8, 12} and _choose_ranks(1, 16) == {0}
    assert _choose_ranks("all", 3) == {0, 1, 2} and _choose_ranks(9, 2) == {0, 1}
    with pytest.raises(UsageError, match="'all', a list"):
        _choose_ranks("some", 2)
    with pytest.raises(UsageError, match="one rank at least"):
        _choose_ranks(0, 2)


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="2 steps were told .* the first file needs 13"):
        trained(tmp_path, 2)


def test_a_schedule_that_did_not_finish_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning, match="5 steps were told .* the schedule has 13"):
        made = trained(tmp_path, 5)
    (path,) = made.paths
    steps = htk.open(path).tables["annotations"]["step"].drop_null().to_pylist()
    assert {3, 4} <= set(steps), "what there was is kept"
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"htk: recorded rank00000.0.pt.trace.json.gz in {tmp_path}"


def test_the_flight_recorder_is_prepared_unless_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "7")
    made = trained(tmp_path, 2, wait=0, warmup=1, active=1)
    assert not any("NCCL" in hint for hint in made.hints), "no GPU: no NCCL"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made = trained(tmp_path, 2, wait=0, warmup=1, active=1)
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "7"
    assert os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert os.environ["TORCH_FR_DUMP_TEMP_FILE"].startswith(str(tmp_path))
    assert any("NCCL_DEBUG=INFO" in hint for hint in made.hints)


def test_nothing_is_set_when_that_is_not_wanted(tmp_path: Path) -> None:
    made = trained(tmp_path, 2, wait=0, warmup=1, active=1, environment=False)
    assert made.hints == () and not FLIGHT_RECORDER.keys() & os.environ.keys()


def test_an_error_in_the_loop_is_the_loops(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), htk.capture(tmp_path, active=1):
        _ = 1 / 0
