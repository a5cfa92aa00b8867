"""What rows of activities stand for: the sums of each grouping, by hand."""

import pytest

from htk.answers.ask import ask
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, op, write

_DIMS = [[2, 3], [3, 4]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two products of one shape and one of another, a sum on another stream, one without a call."""
    modules = {"Module Hierarchy": "Net.layer"}
    events = [
        op("aten::mm", 0, 8, **{"Input Dims": _DIMS} | modules),
        launch(1, 1),
        kernel("gemm_a", 100, 10, 1),
        op("aten::mm", 10, 8, **{"Input Dims": _DIMS} | modules),
        launch(2, 11),
        kernel("gemm_b", 120, 30, 2),
        op("aten::mm", 20, 8, **{"Input Dims": [[5, 3], [3, 4]]}),
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
    rows = ask(trace, "kernel_top", by=by).to_pylist()
    assert {row["name"]: row["total_ns"] // 1_000 for row in rows} == sums


def test_a_row_of_several_kernels_names_the_largest_and_what_is_told(trace: Trace) -> None:
    answer = ask(trace, "kernel_top", by="op")
    first = answer.to_pylist()[0]
    assert (first["kernel"], first["count"], first["family"]) == ("gemm_b", 3, None)
    assert answer.coverage["op_known_pct"] == round(100 * 47 / 48, 2)
    assert ask(trace, "kernel_top").to_pylist()[0]["kernel"] is None
