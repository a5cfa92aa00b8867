"""Backward nodes that record no sizes take those of their forward call."""

from pathlib import Path
from typing import Any

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

BF16 = "c10::BFloat16"


def numbered(event: Event, sequence: int, forward: int = 0, **args: Any) -> Event:
    event["args"] |= {"Sequence number": sequence, "Fwd thread id": forward, **args}
    return event


def roofline(folder: Path, *events: Event) -> list[dict[str, Any]]:
    path = write(folder / "t.json", *events, **of_rank(0))
    return list(ask_trace(open_trace(path, OpenOptions(cache=False)), "roofline", n=0).to_pylist())


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
    assert {row["name"]: row["flops_per_call"] for row in rows} == {
        "_Linear": once,
        "_LinearBackward": 2 * once,
    }


def test_numbers_that_a_sampled_recording_skips(tmp_path: Path) -> None:
    """Two lookups, the first of which can have made the nodes 7 to 9: node 7 is its, node 11 the
    other's; 12 is neither's."""
    forward = [
        numbered(op("aten::zero_", 0, 1), 7),
        lookup(2, 10),
        numbered(op("aten::zero_", 5, 1), 10),
        lookup(7, 6),
        numbered(op("aten::view", 10, 1), 12),
    ]
    nodes = [node(20, 11), node(30, 7), node(40, 12)]
    work = []
    for k, start in enumerate((21, 31, 41)):
        work += [launch(k + 1, start), kernel("update", start + 4, 4, k + 1)]
    rows = roofline(tmp_path, *forward, *nodes, *work)
    moved = {n: 4 * 4 * 16 + 8 * n + 8 * 5 + 2 * n * 16 * 4 + 2 * 4 * n for n in (6, 10)}
    assert sorted(row["bytes_per_call"] or 0 for row in rows) == [0, moved[6], moved[10]]


def test_a_node_that_two_calls_can_have_made_is_nobody_s(tmp_path: Path) -> None:
    forward = [
        numbered(op("aten::zero_", 0, 1), 7),
        lookup(2, 10),
        lookup(4, 6),
        numbered(op("aten::view", 10, 1), 12),
    ]
    work = [launch(1, 21), kernel("update", 25, 4, 1)]
    (row,) = roofline(tmp_path, *forward, node(20, 8), *work)
    assert row["bytes_per_call"] is None


FLOAT = "float"


def test_what_lists_without_shapes_joined_the_gradient_tells(tmp_path: Path) -> None:
    """Three joins in a row, of which two make nodes; TorchScript's stack before a list is none."""
    joined = shapes([[], []], ["TensorList", "Scalar"])
    stack = shapes([[9, 9], [], []], [FLOAT, "TensorList", "Scalar"])
    events = [
        numbered(op("aten::cat", 0, 4), 5, **joined),
        numbered(op("aten::cat", 10, 4), 6, **joined),
        numbered(op("aten::cat", 20, 4), 7, **stack),
        numbered(op("CatBackward0", 40, 2), 6, 1, **shapes([[3, 50]], [FLOAT])),
        numbered(op("CatBackward0", 44, 2), 5, 1, **shapes([[2, 40]], [FLOAT])),
    ]
    for k, start in enumerate((1, 11, 21)):
        events += [launch(k + 1, start), kernel(f"cat{k}", start + 50, 4, k + 1)]
    rows = roofline(tmp_path, *events)
    sizes = sorted((row["bytes_per_call"] or 0, row["count"]) for row in rows)
    assert sizes == [(0, 1), (2 * 4 * 80, 1), (2 * 4 * 150, 1)]


def test_a_join_of_all_of_a_node_s_gradient(tmp_path: Path) -> None:
    node_ = numbered(op("All2All_Pooled_WaitBackward", 0, 30), 5, 1)
    node_["args"] |= shapes([[16, 48]], [FLOAT])
    inner = op("aten::cat", 2, 4)
    inner["args"] |= shapes([[], []], ["TensorList", "Scalar"])
    outside = op("aten::cat", 40, 4)
    outside["args"] |= shapes([[], []], ["TensorList", "Scalar"])
    work = [launch(1, 3), kernel("cat", 8, 4, 1), launch(2, 41), kernel("cat", 48, 4, 2)]
    rows = roofline(tmp_path, node_, inner, outside, *work)
    assert sorted(row["bytes_per_call"] or 0 for row in rows) == [0, 2 * 4 * 16 * 48]


def test_indices_without_shapes(tmp_path: Path) -> None:
    """What was picked is as large as its gradient; what is put has a place for each value."""
    picked = numbered(op("aten::index", 0, 4), 5, **shapes([[16, 27, 27], []], [FLOAT, ""]))
    back = numbered(op("IndexBackward0", 20, 8), 5, 1, **shapes([[16, 351]], [FLOAT]))
    put = op("aten::_index_put_impl_", 22, 4)
    types = [FLOAT, "", FLOAT, "Scalar", "Scalar"]
    put["args"] |= shapes([[16, 27, 27], [], [16, 351], [], []], types)
    work = [launch(1, 1), kernel("pick", 8, 4, 1), launch(2, 23), kernel("put", 30, 4, 2)]
    rows = roofline(tmp_path, picked, back, put, *work)
    assert {row["name"]: row["bytes_per_call"] for row in rows} == {
        "aten::index": 2 * 4 * 16 * 351,
        "aten::_index_put_impl_": 2 * 4 * 16 * 351,
    }
    assert all("indices" in row["note"] for row in rows)


def test_a_lookup_in_dense_tables_and_its_gradient(tmp_path: Path) -> None:
    """Two tables of seven rows in all, 16 wide: 24 indices for four bags of each table."""
    dims: list[Any] = [[112], [2], [3], [], [], [3], [], [24], [9], [], [], [], []]
    types = ["long" if k in (1, 5, 7, 8) else "int" if k == 2 else FLOAT for k in range(13)]
    call = op("fbgemm::dense_embedding_codegen_lookup_function", 2, 2)
    call["args"] |= shapes(dims, [t if d else "" for t, d in zip(types, dims, strict=True)])
    back = op("torch::autograd::CppNode<SplitLookupFunction_Dense_Op>", 20, 2)
    numbered(back, 7, 1, **shapes([[4, 32]], [FLOAT]))
    events = [call, numbered(op("aten::view", 10, 1), 8), back]
    work = [launch(1, 3), kernel("look", 8, 2, 1), launch(2, 21), kernel("update", 25, 4, 2)]
    rows = {r["name"]: r["bytes_per_call"] for r in roofline(tmp_path, *events, *work)}
    read = 4 * 112 + 8 * 24 + 8 * 9  # the tables are smaller than what is looked up
    assert rows[call["name"]] == read + 4 * 8 * 16
    assert rows[back["name"]] == read + 4 * 4 * 32
