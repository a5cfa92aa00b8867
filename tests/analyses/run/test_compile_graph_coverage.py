"""GPU time in CUDA graphs, compiled and eager."""

from htk.analyses.run.compile_graph_coverage import compile_graph_coverage
from tests.tables import answer_of, make

OPS = [
    {"name": "Torch-Compiled Region: 0/1", "start_ns": 0, "end_ns": 50},
    {"name": "aten::mm", "start_ns": 10, "end_ns": 20},
    {"name": "aten::add", "start_ns": 60, "end_ns": 70},
    {"name": "Torch-Compiled Region: 1/0", "start_ns": 80, "end_ns": 90},
    {"name": "_compile.compile_inner", "start_ns": 90, "end_ns": 97},
]
LINKS = [{"depth": 0}, {"depth": 1, "parent_row": 0}, *[{"depth": 0}] * 3]
KERNELS = [
    ({"op_row": 1, "launch_row": 0}, 10),
    ({"op_row": 2, "launch_row": 1}, 20),
    ({"launch_row": 2, "launch_by": "graph"}, 30),
    ({"launch_row": 2, "launch_by": "graph"}, 30),
    ({}, 10),
]


def test_each_activity_is_of_one_kind() -> None:
    kernels = [{"name": "k", "start_ns": 0, "end_ns": length} for _, length in KERNELS]
    found = answer_of(
        compile_graph_coverage,
        kernels=make("kernels", kernels),
        kernel_links=make("kernel_links", [link for link, _ in KERNELS]),
        cpu_ops=make("cpu_ops", OPS),
        op_links=make("op_links", [{"thread_index": 0, **link} for link in LINKS]),
    )
    times = {
        r["how"]: (r["device_ns"], r["device_time_pct"], r["kernels"], r["launches"]) for r in found
    }
    assert times == {
        "cuda graph": (60, 60, 2, 1),
        "compiled": (10, 10, 1, 1),
        "eager": (20, 20, 1, 1),
        "outside operators": (10, 10, 1, 0),
    }
    facts = {(r["regions"], r["python_frames"], r["recompiles"], r["compile_ns"]) for r in found}
    assert facts == {(2, 2, 1, 7)}


def test_compiled_kernels_without_operators() -> None:
    kernel = {"name": "triton_poi_fused_add_0", "start_ns": 0, "end_ns": 5}
    (row,) = answer_of(
        compile_graph_coverage,
        kernels=make("kernels", [kernel]),
        kernel_links=make("kernel_links", [{}]),
    )
    assert (row["how"], row["regions"]) == ("compiled", None)
