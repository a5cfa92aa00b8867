"""The call tree of the operators, by hand; a chain of very many calls."""

from pathlib import Path

from htk.analyses.ops.op_tree import op_tree
from htk.answers.ask import ask_trace
from tests.analyses.ops.launched import training_step
from tests.tables import make


def test_by_hand(tmp_path: Path) -> None:
    found = ask_trace(training_step(tmp_path), "op_tree").to_pylist()
    columns = ("id", "parent", "depth", "op", "cpu_self_ns", "device_total_ns", "device_self_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        (0, None, 0, "AddmmBackward0", 10_000, 40_000, 0),
        (1, 0, 1, "aten::mm", 20_000, 40_000, 40_000),
        (2, None, 0, "aten::linear", 4_000, 25_000, 0),
        (3, 2, 1, "aten::addmm", 16_000, 25_000, 25_000),
        (4, None, 0, "aten::relu", 10_000, 4_000, 4_000),
    ]
    assert found[1]["path"] == "AddmmBackward0 > aten::mm"
    assert (found[0]["callees"], found[0]["kernels"]) == (1, 1)


def test_what_is_left_out_counts_in_its_callers(tmp_path: Path) -> None:
    trace = training_step(tmp_path)
    shallow = ask_trace(trace, "op_tree", depth=1).to_pylist()
    assert [(r["op"], r["device_total_ns"]) for r in shallow] == [
        ("AddmmBackward0", 40_000),
        ("aten::linear", 25_000),
        ("aten::relu", 4_000),
    ]
    large = ask_trace(trace, "op_tree", min_pct=40.0).to_pylist()
    assert [r["op"] for r in large] == ["AddmmBackward0", "aten::mm"]


def test_each_rank_has_its_own_tree() -> None:
    ops = [{"rank": r, "name": "a", "start_ns": 0, "end_ns": 10} for r in (0, 1)]
    links = [{"depth": 0, "thread_index": 0, "selected": True}] * 2
    tables = (make("cpu_ops", ops), make("op_links", links))
    nothing = (make("kernels", []), make("kernel_links", []))
    assert [r["count"] for r in op_tree(*tables, *nothing).to_pylist()] == [2]
    found = op_tree(*tables, *nothing, per="rank").to_pylist()
    assert [(r["rank"], r["count"]) for r in found] == [(0, 1), (1, 1)]


def test_a_very_deep_chain_of_calls() -> None:
    deep = 5_000
    ops = [{"name": "f", "start_ns": k, "end_ns": 2 * deep - k} for k in range(deep)]
    links = [
        {"parent_row": k - 1 if k else None, "depth": k, "thread_index": 0, "selected": True}
        for k in range(deep)
    ]
    found = op_tree(
        make("cpu_ops", ops),
        make("op_links", links),
        make("kernels", []),
        make("kernel_links", []),
        min_pct=0.0,
    )
    assert found.num_rows == deep
    assert found["depth"].to_pylist() == list(range(deep))
    assert found["path"][deep - 1].as_py().startswith("… > f")
