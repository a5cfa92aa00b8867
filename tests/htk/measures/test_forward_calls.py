"""Backward nodes that record no sizes take those of their forward call."""

from pathlib import Path
from typing import Any

from htk.answers.ask import ask
from htk.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

BF16 = "c10::BFloat16"


def numbered(event: Event, sequence: int, forward: int = 0, **args: Any) -> Event:
    event["args"] |= {"Sequence number": sequence, "Fwd thread id": forward, **args}
    return event


def roofline(folder: Path, *events: Event) -> list[dict[str, Any]]:
    path = write(folder / "t.json", *events, **of_rank(0))
    return list(ask(open_trace(path, OpenOptions(cache=False)), "roofline", n=0).to_pylist())


def shapes(dims: list[Any], types: list[str]) -> dict[str, Any]:
    return {"Input Dims": dims, "Input type": types}


def lookup(start: float, indices: int) -> Event:
    """Into 20 rows of 16 floats, for four bags, as C++ makes it: without a number."""
    dims: list[Any] = [[0], [320], [0], [0, 0], [1], [1], [2], [], [], [2]]
    dims += [[], [indices], [5], [], [], [], [0], [], [], [], [20], [0]]
    types = ["long" if k in (9, 11, 12) else "float" if d else "" for k, d in enumerate(dims)]
    call = op("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", start, 2)
    call["args"] |= shapes(dims, types)
    return call


def node(start: float, sequence: int) -> Event:
    name = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"
    return numbered(op(name, start, 2), sequence, 1, **shapes([[4, 16]], ["float"]))


def test_a_call_in_cpp_has_the_number_before_that_of_the_next_operator(tmp_path: Path) -> None:
    """Two lookups of ten and of six indices; their nodes run in the other order."""
    forward = [
        numbered(op("aten::zero_", 0, 1), 7),
        lookup(2, 10),
        numbered(op("aten::zero_", 5, 1), 8),
        lookup(7, 6),
        numbered(op("aten::view", 10, 1), 9),
    ]
    work = [launch(1, 21), kernel("update", 25, 4, 1), launch(2, 31), kernel("update", 35, 4, 2)]
    rows = roofline(tmp_path, *forward, node(20, 8), node(30, 7), *work)
    assert len(rows) == 2

    def moved(indices: int) -> int:  # gradient, indices, offsets; rows and their state, both ways
        return 4 * 4 * 16 + 8 * indices + 8 * 5 + 2 * indices * 16 * 4 + 2 * 4 * indices

    assert sorted(row["bytes_per_call"] for row in rows) == [moved(6), moved(10)]
    assert all("forward call" in row["note"] for row in rows)


def test_widths_of_several_tables_are_those_of_the_gradient(tmp_path: Path) -> None:
    """Three tables of 24 elements a row in all, whose state has one number an element."""
    call, back = lookup(2, 30), node(20, 7)
    call["name"] = call["name"].replace("rowwise_", "")
    back["name"] = back["name"].replace("rowwise_", "")
    call["args"]["Input Dims"][6] = [4]
    call["args"]["Input Dims"][12] = [13]
    back["args"]["Input Dims"] = [[4, 24]]
    events = [call, numbered(op("aten::view", 10, 1), 8), back]
    (row,) = roofline(tmp_path, *events, launch(1, 21), kernel("update", 25, 4, 1))
    rows_ = 30 * 8  # elements, of a mean width of 8
    assert row["bytes_per_call"] == 4 * 4 * 24 + 8 * 30 + 8 * 13 + 2 * rows_ * 4 + 2 * 4 * rows_


def test_a_node_whose_forward_call_was_not_recorded(tmp_path: Path) -> None:
    work = [launch(1, 21), kernel("update", 25, 4, 1)]
    (row,) = roofline(tmp_path, numbered(op("aten::zero_", 0, 1), 3), node(20, 8), *work)
    assert row["bytes_per_call"] is None and row["note"] == "shapes incomplete"


def test_the_backward_of_a_linear_layer_is_two_products(tmp_path: Path) -> None:
    linear = op("_Linear", 1, 5)
    told = shapes([[24, 32], [16, 32], []], [BF16, BF16, ""])
    back = numbered(op("_LinearBackward", 20, 5), 4, 1, **shapes([[16, 24]], [BF16]))
    work = [launch(1, 2), kernel("gemm", 8, 3, 1), launch(2, 22), kernel("gemm", 28, 6, 2)]
    rows = roofline(tmp_path, numbered(linear, 4, **told), back, *work)
    once = 2 * 16 * 24 * 32
    assert {row["op"]: row["flops_per_call"] for row in rows} == {
        "_Linear": once,
        "_LinearBackward": 2 * once,
    }
