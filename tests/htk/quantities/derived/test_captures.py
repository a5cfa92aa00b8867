"""Kernels of a CUDA graph and the operators that were captured."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.quantities.derived.captures import captured_ops
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write


def call(name: str, ts: float, correlation: int) -> Event:
    return {**launch(correlation, ts, 0.5), "name": name}


def capture(ts: float, *names: str) -> list[Event]:
    """Operators that each launch one node, captured from `ts` on."""
    events = [call("cudaStreamBeginCapture", ts, int(100 * ts))]
    for k, name in enumerate(names):
        at = ts + 2 * k + 1
        made = op(name, at, 1.5)
        made["args"] |= {"Input Dims": [[8, 4], [4, 6]], "Input type": ["c10::BFloat16"] * 2}
        events += [made, call("cudaLaunchKernel", at + 0.2, int(100 * at))]
    return [*events, call("cudaStreamEndCapture", ts + 2 * len(names) + 1, int(100 * ts) + 1)]


def replay(ts: float, correlation: int, nodes: int) -> list[Event]:
    run = [kernel(f"k{k}", ts + 1 + k, 1, correlation) for k in range(nodes)]
    return [call("cudaGraphLaunch", ts, correlation), *run]


def linked(path: Path) -> list[str | None]:
    """Name of the captured operator of each kernel."""
    tables = open_trace(path, OpenOptions(cache=False)).tables
    reads = ("kernels", "kernel_links", "launches", "launch_links")
    rows, _ = captured_ops(*(tables[name] for name in reads))
    return [tables["cpu_ops"]["name"][r].as_py() if r >= 0 else None for r in rows.tolist()]


def test_nodes_are_those_of_the_capture_in_order(tmp_path: Path) -> None:
    events = [*capture(0, "aten::mm", "aten::add"), *replay(50, 7, 2), *replay(60, 8, 2)]
    assert linked(write(tmp_path / "t.json", *events)) == ["aten::mm", "aten::add"] * 2


def test_pieces_that_follow_one_another(tmp_path: Path) -> None:
    """Two captures of equal length: which is which, the piece before tells."""
    events = [*capture(0, "aten::mm"), *capture(10, "aten::mm", "aten::add")]
    events += capture(20, "aten::mul", "aten::exp")
    events += [*replay(50, 7, 1), *replay(60, 8, 2), *replay(70, 9, 2)]
    names = ["aten::mm", "aten::mm", "aten::add", "aten::mul", "aten::exp"]
    assert linked(write(tmp_path / "t.json", *events)) == names
    alone = [*capture(0, "aten::mm"), *capture(10, "aten::mul"), *replay(50, 7, 1)]
    assert linked(write(tmp_path / "alone.json", *alone)) == [None], "either could be it"
    other = [*capture(0, "aten::mm"), *replay(50, 7, 3)]
    assert linked(write(tmp_path / "other.json", *other)) == [None] * 3


def test_kernels_of_replays_stand_below_their_captured_operators(tmp_path: Path) -> None:
    events = [*capture(0, "aten::mm", "aten::add"), *replay(50, 7, 2), *replay(60, 8, 2)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    rows = ask_trace(trace, "kernel_top", by="op").to_pylist()
    assert {row["name"]: row["count"] for row in rows} == {"aten::mm": 2, "aten::add": 2}


def test_every_question_names_a_replayed_kernel_by_its_capture(tmp_path: Path) -> None:
    events = [*capture(0, "aten::mm", "aten::addmm"), *replay(50, 7, 2), *replay(60, 8, 2)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    for question, name in {
        "kernel_top": "name", "short_kernels": "label", "flops": "name", "roofline": "name",
    }.items():  # fmt: skip
        rows = ask_trace(trace, question, by="op").to_pylist()
        assert {row[name] for row in rows} == {"aten::mm", "aten::addmm"}, question


def test_a_replayed_product_counts_at_each_replay(tmp_path: Path) -> None:
    """2·8·4·6 each; the capture itself ran nothing."""
    events = [*capture(0, "aten::mm"), *replay(50, 7, 1), *replay(60, 8, 1)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    found = ask_trace(trace, "flops")
    (row,) = found.to_pylist()
    assert (row["model_flops"], row["modelled_pct"]) == (2 * 384, 100)
    assert found.coverage["told_by_graph_captures_ns"] == 2000
    (line,) = ask_trace(trace, "roofline").to_pylist()
    assert (line["name"], line["count"], line["flops_per_call"]) == ("aten::mm", 2, 384)


INFERENCE = {
    "sglang_decode": ("sglang_Qwen3-8B_decode.json.gz", 0.3, 99.5),
    "vllm_prefilldecode_piecewise": ("graph_execution.json.gz", 3.9, 20.0),
}


@pytest.mark.parametrize("name", INFERENCE)
def test_public_servers_with_and_without_their_captures(shared: Path, name: str) -> None:
    """Most of the second one is experts whose sizes no call records."""
    file, without, at_least = INFERENCE[name]
    folder = shared / "traces/tracelens/inference" / name
    both = [folder / file, *(folder / "capture_traces").iterdir()]
    share = "modelled_pct_of_device_time"
    assert ask_trace(open_trace(folder / file), "flops").coverage[share] >= without
    assert ask_trace(open_trace(both), "flops").coverage[share] >= at_least
