"""Kernels of a replayed graph with the lines and modules that a file beside the trace names."""

from pathlib import Path
from shutil import copy

from htk.answers.ask import ask_trace
from htk.quantities.graph.build import READS, build_graph
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, write
from tests.kineto_graph import HEADER, replay

SAMPLES = Path(__file__).parents[4] / "sample_traces/kernel_stacks"
FUSED = "triton_poi_fused_add_relu_0"


def opened(folder: Path, *names: str) -> Trace:
    """A graph, and a kernel of Inductor's of 2 us after its replay."""
    alone = [launch(9, 7_800_000_000_080.0), kernel(FUSED, 7_800_000_000_090.0, 2, 9)]
    write(folder / "rank0.json", *replay(1, 0), *alone, **HEADER)
    for name in names:
        copy(SAMPLES / name, folder)
    return open_trace(folder, OpenOptions(cache=False))


def test_lines_and_modules_of_a_replay(tmp_path: Path) -> None:
    beside = ("kernel_py_stacks_rank0.json.gz", "kernel_annotations_rank0_1.json")
    trace = opened(tmp_path, *beside, "kernel_information.json")
    totals = {
        by: {
            row["name"]: row["total_ns"]
            for row in ask_trace(trace, "kernel_top", by=by).to_pylist()
        }
        for by in ("source", "module")
    }
    assert totals["source"] == {
        "models/net.py(41): forward": 5_000,
        "models/net.py(42): forward": 3_000,
        "/home/me/net.py(9): forward + /home/me/net.py(10): forward": 2_000,
        "[no line of the program]": 4_000,
    }
    assert totals["module"] == {"layers.1.mlp": 5_000, "layers.2.mlp": 3_000, "[no module]": 6_000}
    assert not trace.unread and not trace.failed


def test_edges_between_nodes_are_waits_that_were_recorded(tmp_path: Path) -> None:
    trace = opened(tmp_path)
    graph = build_graph({name: trace.tables[name] for name in READS})
    waits = graph.edges("event")
    assert sorted(graph.weight[waits].tolist()) == [0, 0, 2_000]
    assert graph.observed[waits].all()
