"""What a recording does not hold is null, never 0: every analysis, on real host recordings."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import htk
from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.output.figures import draw_figure
from htk.base.core.chart import Bar
from htk.base.errors import HtkError, MissingTable
from htk.verdicts.overview.summary import reach_verdict
from tests.kineto_file import kernel, launch, of_rank, op, step, write

SAMPLES = Path(__file__).parents[1] / "sample_traces"
ON_HOST = ("transformer", "ddp", "fsdp2", "compiled")
# Columns that speak of a GPU's work by their names.
_OF_GPU = re.compile(r"gpu|kernel|device_.*ns|exposed|idle|^launching|^compute_ns|^recorded_ns")


@pytest.fixture(scope="module", params=ON_HOST)
def on_host(request: pytest.FixtureRequest) -> Any:
    """Real recordings of a CPU: one process with everything, DDP and FSDP over gloo, compiled."""
    return htk.open(SAMPLES / "recorded" / request.param)


def _answers(trace: Any) -> dict[str, pa.Table]:
    answers = {}
    for name in ANALYSES:
        try:
            answers[name] = ask_trace(trace, name).table
        except HtkError:
            continue
    return answers


def test_without_gpu_work_no_column_of_it_is_zero(on_host: Any) -> None:
    answers = _answers(on_host)
    assert {"op_breakdown", "phase_breakdown", "step_times", "op_tree"} <= answers.keys()
    for name, table in answers.items():
        listed = find_analysis(name).null_without.get("kernels", ())
        for column in table.column_names:
            if column in listed or _OF_GPU.search(column):
                values = table[column]
                assert values.null_count == table.num_rows, f"{name}.{column}: {values[:3]}"


def test_what_is_listed_exists_and_is_more_than_a_key() -> None:
    for name in ANALYSES:
        analysis = find_analysis(name)
        listed = [column for columns in analysis.null_without.values() for column in columns]
        assert set(listed) <= set(analysis.returns.names), name


def test_one_rank_without_gpu_work_beside_one_with(tmp_path: Path) -> None:
    """Null is a matter of each rank: the other's figures stay."""
    events = op("aten::mm", 0, 50), launch(1, 5), kernel("gemm", 20, 10, 1)
    write(tmp_path / "a.json", *events, **of_rank(0, 2))
    write(tmp_path / "b.json", events[0], **of_rank(1, 2))
    phases = ask_trace(htk.open(tmp_path), "phase_breakdown").to_pylist()
    assert {(row["rank"], row["device_ns"]) for row in phases} >= {(0, 10_000), (1, None)}
    pooled = ask_trace(htk.open(tmp_path), "op_breakdown").to_pylist()
    assert {row["op"]: row["device_total_ns"] for row in pooled}["aten::mm"] == 10_000


def test_a_choice_without_gpu_work_is_zero_not_null(tmp_path: Path) -> None:
    """Step 2 ran nothing on the GPU, and that was recorded."""
    events = [step(1, 0, 50), op("aten::mm", 0, 40), launch(1, 5), kernel("gemm", 20, 10, 1)]
    trace = htk.open(write(tmp_path / "a.json", *events, step(2, 60, 50), op("aten::mm", 61, 40)))
    (row,) = [r for r in trace.sel(steps=[2]).op_breakdown().to_pylist() if r["op"] == "aten::mm"]
    assert row["device_total_ns"] == 0 and row["kernels"] == 0


def test_pictures_fall_back_to_the_host(on_host: Any) -> None:
    pytest.importorskip("plotly")
    for name in ("op_breakdown", "op_tree", "annotation_breakdown"):
        chart = find_analysis(name).chart
        assert isinstance(chart, Bar)
        drawn = draw_figure(ask_trace(on_host, name).table, chart).data
        assert drawn and any(sum(value or 0 for value in bars.x) > 0 for bars in drawn), name


def test_hints_ask_for_what_lacks(on_host: Any) -> None:
    with pytest.raises(MissingTable, match=r"ProfilerActivity\.CUDA"):
        on_host.step_variance()
    texts = [str(value) for row in on_host.doctor().to_pylist() for value in row.values()]
    assert not any("prof.step()" in text for text in texts)


def test_fsdp_on_the_host_is_seen() -> None:
    with pytest.raises(MissingTable, match="recorded on the host alone"):
        htk.open(SAMPLES / "recorded/fsdp2").fsdp_units()


def test_the_verdict_tells_the_host_s_time(on_host: Any) -> None:
    told = reach_verdict(on_host)
    assert told.on_host and told.step_ns == told.cpu_step_ns
    assert sum(s.pct for s in told.shares) == pytest.approx(100)
    names = {s.name for s in told.shares}
    assert {"forward", "backward"} <= names and "compute" not in names
    assert {"op_breakdown", "phase_breakdown"} <= dict(told.next).keys()


def test_a_starved_step_and_a_piece_of_one(tmp_path: Path) -> None:
    """Three steps of 100 us, of which 30 load data; 2 us after the last `step()` are no step."""
    events = []
    for k in range(3):
        at = 100.0 * k
        events += [step(k, at, 100), op("enumerate(DataLoader)#_SingleProcess.__next__", at, 30)]
        events += [op("aten::mm", at + 40, 50)]
    trace = htk.open(write(tmp_path / "a.json", *events, step(3, 300, 2)))
    times = {row["step"]: row["complete"] for row in trace.step_times().to_pylist()}
    assert times == {0: True, 1: True, 2: True, 3: False}
    told = reach_verdict(trace)
    assert (told.step_ns, told.steps, told.step_spread_ns) == (100_000, 3, 0)
    shares = {s.name: (s.pct, s.time_ns) for s in told.shares}
    assert shares["data loading"] == (pytest.approx(30), 90_000)
    assert shares["outside operators"] == (pytest.approx(20), 60_000)
    assert told.causes[0].finding == "the step waits for data"
    assert told.causes[0].time_ns == 90_000


def test_a_sliver_of_gpu_work_is_no_headline(tmp_path: Path) -> None:
    """2 us of GPU work in a step of 10 s."""
    events = [step(1, 0, 10e6), op("aten::mm", 0, 9e6), launch(1, 5), kernel("fill", 20, 2, 1)]
    told = reach_verdict(htk.open(write(tmp_path / "a.json", *events)))
    assert told.on_host and told.step_ns == 10_000_000_000
    assert told.headline == "1 rank, step on the host 10.0 s; 1 step"
    assert "kernel_top" in dict(told.next)
