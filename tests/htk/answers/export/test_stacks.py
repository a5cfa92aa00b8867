"""Folded stacks and speedscope's format: sums, and a job by hand."""

import json
from pathlib import Path

import pytest

from htk.answers.export.stacks import rank_stacks, write_folded, write_speedscope
from htk.base.errors import MissingTable
from htk.faces.cli.main import run_command_line
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, of_rank, op, span, write

ROOT = Path(__file__).parents[4]
SETS = ("kineto/rank*.pt.trace.json", "nsight", "xplane", "recorded/transformer")


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


def job(path: Path, rank: int) -> Path:
    """main calls mm twice: once straight, once in f; add runs alone. One kernel has no launch."""
    return write(
        path,
        op("aten::linear", 0, 10),
        op("aten::mm", 1, 6),
        launch(1, 2),
        kernel("gemm;x", 20, 5, 1),
        op("aten::add", 20, 4),
        launch(2, 21),
        kernel("add", 30, 2, 2),
        kernel("late", 40, 3 + rank, 99),
        **of_rank(rank, 2),
    )


def test_stacks_by_hand(tmp_path: Path) -> None:
    for rank in range(2):
        job(tmp_path / f"rank{rank}.json", rank)
    written = dict(write_folded(opened(tmp_path), tmp_path / "out"))
    text = {p.name: sorted(p.read_text().splitlines()) for p in written}
    assert text["cpu.folded"] == [
        f"rank {rank};{stack}"
        for rank in range(2)
        for stack in ("aten::add 4000", "aten::linear 4000", "aten::linear;aten::mm 6000")
    ]
    assert text["gpu.folded"] == [
        f"rank {rank};{stack}"
        for rank in range(2)
        for stack in (
            f"(not linked);late {3000 + 1000 * rank}",
            "aten::add;add 2000",
            "aten::linear;aten::mm;gemm,x 5000",
        )
    ]


def test_speedscope_holds_the_same_stacks(tmp_path: Path) -> None:
    for rank in range(2):
        job(tmp_path / f"rank{rank}.json", rank)
    ((path, count),) = write_speedscope(opened(tmp_path), tmp_path / "out")
    file = json.loads(path.read_text())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert [p["name"] for p in file["profiles"]] == [
        f"rank {rank}, {unit} time" for rank in range(2) for unit in ("CPU", "GPU")
    ]
    frames = [f["name"] for f in file["shared"]["frames"]]
    found = {
        (p["name"], tuple(frames[k] for k in sample)): weight
        for p in file["profiles"]
        for sample, weight in zip(p["samples"], p["weights"], strict=True)
    }
    assert found["rank 1, GPU time", ("(not linked)", "late")] == 4000
    assert found["rank 0, CPU time", ("aten::linear", "aten::mm")] == 6000
    assert len(found) == count == 12
    for profile in file["profiles"]:
        assert profile["endValue"] == sum(profile["weights"])


def covered(trace: Trace) -> int:
    """Time in which some call of a thread runs, by brute force."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for table in ("cpu_ops", "python_calls"):
        for r in trace.tables[table].to_pylist():
            spans.setdefault(r["thread"], []).append((r["start_ns"], r["end_ns"]))
    total = 0
    for listed in spans.values():
        reach = 0
        for start, end in sorted(listed):
            total += max(end, reach) - max(start, reach)
            reach = max(end, reach)
    return total


@pytest.mark.parametrize("name", SETS)
def test_no_time_is_lost(name: str) -> None:
    """GPU stacks hold every activity; CPU stacks hold the time of the outermost calls."""
    trace = opened(ROOT / "sample_traces" / name)
    for one in rank_stacks(trace):
        own = trace.sel(ranks=[one.rank])
        kernels = own.tables["kernels"].to_pylist()
        assert sum(s.time_ns for s in one.gpu) == sum(k["end_ns"] - k["start_ns"] for k in kernels)
        assert sum(s.time_ns for s in one.cpu) == pytest.approx(covered(own), rel=1e-3)
        assert all(s.time_ns > 0 and s.frames for s in one.cpu + one.gpu)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "rank0.json", 0)
    for form, name in (("folded", "gpu.folded"), ("speedscope", "stacks.speedscope.json")):
        out = tmp_path / form
        assert (
            run_command_line(
                ["convert", str(tmp_path / "rank0.json"), "--format", form, "-o", str(out)]
            )
            == 0
        )
        assert (out / name).is_file() and name in capsys.readouterr().err


def test_nothing_to_stack_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", span("a range", 0, 5), **of_rank(0))
    with pytest.raises(MissingTable):
        write_folded(opened(path), tmp_path / "out")
