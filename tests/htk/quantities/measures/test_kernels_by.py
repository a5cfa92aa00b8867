"""What rows of activities stand for: the sums of each grouping, by hand."""

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, op, write

_TYPES = {"Input type": ["float", "float"]}
_DIMS = [[2, 3], [3, 4]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two products of one shape and one of another, a sum on another stream, one without a call."""
    modules = {"Module Hierarchy": "Net.layer"}
    events = [
        op("aten::mm", 0, 8, **{"Input Dims": _DIMS} | _TYPES | modules),
        launch(1, 1),
        kernel("gemm_a", 100, 10, 1),
        op("aten::mm", 10, 8, **{"Input Dims": _DIMS} | _TYPES | modules),
        launch(2, 11),
        kernel("gemm_b", 120, 30, 2),
        op("aten::mm", 20, 8, **{"Input Dims": [[5, 3], [3, 4]]} | _TYPES),
        launch(3, 21),
        kernel("gemm_b", 160, 5, 3),
        op("aten::sum", 30, 8, **{"Input Dims": [[7]]}),
        launch(4, 31),
        kernel("reduce_kernel", 170, 2, 4, stream=9),
        kernel("gemm_a", 180, 1),
    ]
    path = write(tmp_path_factory.mktemp("by") / "rank0.json", *events)
    return open_trace(path, OpenOptions(cache=False))


@pytest.mark.parametrize(
    ("by", "sums"),
    [
        ("kernel", {"gemm_b": 35, "gemm_a": 11, "reduce_kernel": 2}),
        ("family", {"gemm": 46, "reduction": 2}),
        ("op", {"aten::mm": 45, "aten::sum": 2, "[launch not recorded]": 1}),
        (
            "shape",
            {
                "aten::mm [[2,3],[3,4]]": 40,
                "aten::mm [[5,3],[3,4]]": 5,
                "aten::sum [[7]]": 2,
                "[launch not recorded]": 1,
            },
        ),
        ("module", {"Net.layer": 40, "[no module]": 7, "[launch not recorded]": 1}),
        ("stream", {"device 0 stream 7": 46, "device 0 stream 9": 2}),
        ("phase", {"forward": 47, "[launch not recorded]": 1}),
    ],
)
def test_sums_of_each_grouping(trace: Trace, by: str, sums: dict[str, int]) -> None:
    rows = ask_trace(trace, "kernel_top", by=by).to_pylist()
    assert {row["name"]: row["total_ns"] // 1_000 for row in rows} == sums


def test_a_row_of_several_kernels_names_the_largest_and_what_is_told(trace: Trace) -> None:
    answer = ask_trace(trace, "kernel_top", by="op")
    first = answer.to_pylist()[0]
    assert (first["kernel"], first["count"], first["family"]) == ("gemm_b", 3, None)
    assert answer.coverage["op_known_pct"] == round(100 * 47 / 48, 2)
    assert ask_trace(trace, "kernel_top").to_pylist()[0]["kernel"] is None


@pytest.mark.parametrize(
    ("by", "work"),
    [
        ("kernel", {"gemm_a": (1, 48, 10), "gemm_b": (2, 84, 35)}),
        ("op", {"aten::mm": (3, 72, 45)}),
        ("stream", {"device 0 stream 7": (3, 72, 45)}),
        ("module", {"Net.layer": (2, 48, 40), "[no module]": (2, 120, 7)}),
        ("shape", {"aten::mm [[2,3],[3,4]]": (2, 48, 40), "aten::mm [[5,3],[3,4]]": (1, 120, 5)}),
    ],
)
def test_work_of_each_grouping(
    trace: Trace, by: str, work: dict[str, tuple[int, int, int]]
) -> None:
    """For each call: its operations, two for each multiply-add, and its time in us."""
    rows = [r for r in ask_trace(trace, "roofline", by=by).to_pylist() if r["flops_per_call"]]
    found = {
        " ".join(filter(None, (row["name"], row["shapes"]))): (
            row["count"],
            row["flops_per_call"],
            row["device_ns"] / 1_000,
        )
        for row in rows
    }
    assert found == work
    flops = {row["name"]: row for row in ask_trace(trace, "flops", by=by).to_pylist()}
    assert sum(row["model_flops"] for row in flops.values()) == 216
    assert sum(row["device_ns"] for row in flops.values()) == 48_000
    assert set(work) <= set(flops)


def test_chosen_activities_are_named_by_what_the_host_did(trace: Trace) -> None:
    rows = ask_trace(trace.sel(streams=[9]), "kernel_top", by="op").to_pylist()
    assert [(row["name"], row["total_ns"]) for row in rows] == [("aten::sum", 2_000)]
    rows = ask_trace(trace.sel(name="gemm_b"), "kernel_top", by="module").to_pylist()
    assert {row["name"]: row["total_ns"] for row in rows} == {
        "Net.layer": 30_000,
        "[no module]": 5_000,
    }
    with pytest.raises(UsageError, match="only questions about kernels"):
        ask_trace(trace.sel(streams=[9]), "op_breakdown")
