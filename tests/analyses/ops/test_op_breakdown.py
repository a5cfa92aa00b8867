"""Which operators take the time: by hand, and against TraceLens's reference results."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.ops.launched import training_step
from tests.analyses.tracelens import REFERENCES, report
from tests.kineto_file import kernel, launch, of_rank, op, write


def rows(folder: Path, **options: Any) -> dict[str, dict[str, Any]]:
    found = ask_trace(training_step(folder), "op_breakdown", **options).to_pylist()
    return {row["op"]: row for row in found}


def test_by_hand(tmp_path: Path) -> None:
    found = rows(tmp_path)
    us = 1000
    columns = (
        "count",
        "cpu_total_ns",
        "cpu_self_ns",
        "device_total_ns",
        "device_self_ns",
        "kernels",
    )
    assert {name: tuple(row[c] for c in columns) for name, row in found.items()} == {
        "aten::linear": (1, 20 * us, 4 * us, 25 * us, 0, 2),
        "aten::addmm": (1, 16 * us, 16 * us, 25 * us, 25 * us, 2),
        "aten::relu": (1, 10 * us, 10 * us, 4 * us, 4 * us, 1),
        "AddmmBackward0": (1, 30 * us, 10 * us, 40 * us, 0, 1),
        "aten::mm": (1, 20 * us, 20 * us, 40 * us, 40 * us, 1),
        "(launched before the recording)": (None, None, None, 7 * us, 7 * us, 1),
        "(launched outside operators)": (None, None, None, 3 * us, 3 * us, 1),
    }
    assert found["aten::addmm"]["kernels_per_call"] == 2
    assert sum(row["device_time_pct"] for row in found.values()) == pytest.approx(100)


def test_an_operator_has_in_each_part_of_its_time_what_it_launched_there(tmp_path: Path) -> None:
    """aten::mm begins at 10, its products run at 15 and 30; aten::add begins at 40."""
    events = [
        op("aten::mm", 10, 9),
        launch(1, 11),
        kernel("gemm", 15, 5, 1),
        launch(2, 13),
        kernel("gemm", 30, 7, 2),
        op("aten::add", 40, 9),
        launch(3, 41),
        kernel("add", 45, 2, 3),
    ]
    path = write(tmp_path / "t.json", *events, **of_rank(0))
    trace = open_trace(path, OpenOptions(cache=False))  # begins at 10
    late = ask_trace(trace.sel(from_ns=2_500), "op_breakdown").to_pylist()
    assert {row["op"]: (row["device_self_ns"], row["cpu_total_ns"]) for row in late} == {
        "aten::mm": (7_000, 6_500),
        "aten::add": (2_000, 9_000),
    }
    early = ask_trace(trace.sel(to_ns=2_500), "op_breakdown").to_pylist()
    columns = ("device_self_ns", "cpu_total_ns")
    assert [[row[c] for c in ("op", *columns)] for row in early] == [["aten::mm", 5_000, 2_500]]


def test_device_time_by_forward_operator(tmp_path: Path) -> None:
    found = rows(tmp_path)
    assert found["aten::addmm"]["backward_device_ns"] == 40_000
    assert found["aten::linear"]["backward_device_ns"] == 40_000  # it calls addmm
    assert found["aten::relu"]["backward_device_ns"] == 0


def test_told_apart(tmp_path: Path) -> None:
    shape = rows(tmp_path, by="shape")["aten::addmm"]
    assert (shape["by"], shape["types"]) == ("[[8,4],[4]]", '["float","float"]')
    module = rows(tmp_path, by="module")
    assert module["aten::addmm"]["by"] == module["aten::mm"]["by"] == "Net_0.Linear_1"
    assert rows(tmp_path, by="source")["aten::relu"]["by"] == "train.py(1): main"
    assert rows(tmp_path, by="thread")["aten::mm"]["by"] == "rank 0 process 100 thread 2"


def test_an_operator_that_calls_itself_counts_once(tmp_path: Path) -> None:
    events = [op("aten::sum", 0, 100), op("aten::to", 10, 80), op("aten::sum", 20, 50)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    found = {r["op"]: r for r in ask_trace(trace, "op_breakdown").to_pylist()}
    assert found["aten::sum"]["count"] == 2
    assert found["aten::sum"]["cpu_total_ns"] == 100_000
    assert found["aten::sum"]["cpu_self_ns"] == 70_000
    assert found["aten::sum"]["device_time_pct"] is None


def test_what_a_graph_launches_outside_operators(tmp_path: Path) -> None:
    graph = {**launch(1, 5), "name": "cudaGraphLaunch"}
    events = [op("aten::mm", 0, 2), graph, kernel("a", 10, 4, 1), kernel("b", 14, 6, 1)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    first = ask_trace(trace, "op_breakdown").to_pylist()[0]
    assert (first["op"], first["device_self_ns"], first["kernels"]) == (
        "(graph launched outside operators)",
        10_000,
        2,
    )


def test_per_step_counts_what_ran_in_it(tmp_path: Path) -> None:
    assert rows(tmp_path, per="step")["aten::mm"]["step"] == 0
    trace = training_step(tmp_path).sel(steps=[9])
    with pytest.raises(MissingTable, match=r"nothing within steps 9 \(of 0\)"):
        ask_trace(trace, "op_breakdown")


def test_without_modules_it_says_what_would_record_them(tmp_path: Path) -> None:
    trace = open_trace(
        write(tmp_path / "t.json", op("a", 0, 1), **of_rank(0)), OpenOptions(cache=False)
    )
    for by, needed in (("module", "with_modules=True"), ("source", "with_stack=True")):
        with pytest.raises(MissingTable, match=needed):
            ask_trace(trace, "op_breakdown", by=by)


@pytest.mark.parametrize("name", REFERENCES)
def test_as_tracelens_where_all_launches_are_recorded(shared: Path, name: str) -> None:
    """Its direct kernel time and its counts: our own device time, and calls that launch."""
    folder = shared / "traces/tracelens"
    theirs = {
        row["name"]: (float(row["total_direct_kernel_time_sum"]), int(row["Count"]))
        for row in report(folder, name, "ops_summary")
    }
    found = ask_trace(open_trace(folder / f"{name}.json.gz"), "op_breakdown", n=0).to_pylist()
    ours = {
        row["op"]: (row["device_self_ns"] / 1000, row["launching_calls"])
        for row in found
        if row["device_self_ns"] and not row["op"].startswith("(")
    }
    assert ours.keys() == theirs.keys()
    for op_name, (time, count) in theirs.items():
        assert ours[op_name] == (pytest.approx(time, abs=0.01), count)


def test_what_tracelens_leaves_out_is_counted(shared: Path) -> None:
    """It drops the 30 % that were launched before the recording, and memsets without an arrow."""
    folder = shared / "traces/tracelens"
    qwen = open_trace(folder / "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    found = {r["op"]: r for r in ask_trace(qwen, "op_breakdown", n=0).to_pylist()}
    lost = found["(launched before the recording)"]
    assert (lost["kernels"], round(lost["device_time_pct"])) == (509, 30)
    resnet = open_trace(folder / "mi300/resnet_act_checkpoint.json.gz")
    found = {r["op"]: r for r in ask_trace(resnet, "op_breakdown", n=0).to_pylist()}
    rows_of = report(folder, "mi300/resnet_act_checkpoint_recompute", "ops_summary")
    theirs = {r["name"]: float(r["total_direct_kernel_time_sum"]) for r in rows_of}
    ours = found["aten::convolution_backward"]["device_self_ns"] / 1000
    sets = [
        end - start
        for op_row, activity, start, end in zip(
            resnet.tables["kernel_links"]["op_row"].to_pylist(),
            resnet.tables["kernels"]["activity"].to_pylist(),
            resnet.tables["kernels"]["start_ns"].to_pylist(),
            resnet.tables["kernels"]["end_ns"].to_pylist(),
            strict=True,
        )
        if activity == "set"
        and op_row is not None
        and resnet.tables["cpu_ops"]["name"][op_row].as_py() == "aten::convolution_backward"
    ]
    assert ours - theirs["aten::convolution_backward"] == pytest.approx(sum(sets) / 1000, abs=0.01)
