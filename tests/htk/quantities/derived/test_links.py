"""What belongs to what: each link by hand, nesting against a plain twin, public traces."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns import nesting
from htk.base.columns.nesting import Nested
from htk.base.columns.types import NONE
from htk.quantities.derived import links
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write
from tests.tables import make

SPANS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40
)


def trace(tmp_path: Path, *events: Event) -> Trace:
    path = write(tmp_path / "t.json", *events, **of_rank(0))
    return open_trace(path, OpenOptions(cache=False))


def launched(tmp_path: Path, *events: Event) -> list[dict[str, Any]]:
    """Links of the GPU activities, rows replaced by names."""
    tables = trace(tmp_path, *events).tables
    rows = tables["kernel_links"].to_pylist()
    names = {
        "launch_row": tables["launches"]["name"].to_pylist(),
        "op_row": tables["cpu_ops"]["name"].to_pylist(),
        "annotation_row": tables["annotations"]["name"].to_pylist(),
    }
    for row in rows:
        for column, table in names.items():
            row[column] = None if row[column] is None else table[row[column]]
    return rows


def call(
    name: str, correlation: int, ts: float, dur: float, category: str = "cuda_runtime"
) -> Event:
    return {**launch(correlation, ts, dur), "name": name, "cat": category}


def test_by_correlation_and_nesting(tmp_path: Path) -> None:
    (row,) = launched(
        tmp_path,
        step(3, 0, 100),
        span("forward", 1, 90),
        op("aten::linear", 2, 20),
        op("aten::addmm", 4, 10),
        launch(7, 5, 2),
        kernel("gemm", 50, 10, 7),
    )
    assert (row["launch_row"], row["launch_by"]) == ("cudaLaunchKernel", "correlation")
    assert (row["op_row"], row["op_by"]) == ("aten::addmm", "nesting")
    assert (row["step"], row["annotation_row"], row["carry_in"]) == (3, "forward", False)
    assert row["launch_end_ns"] - row["launch_start_ns"] == 2000


def test_of_two_calls_with_one_correlation_the_driver_s_counts(tmp_path: Path) -> None:
    (row,) = launched(
        tmp_path,
        op("aten::mm", 0, 20),
        call("cudaLaunchKernelExC", 7, 2, 10),
        call("cuLaunchKernelEx", 7, 3, 5, "cuda_driver"),
        kernel("gemm", 50, 10, 7),
    )
    assert (row["launch_row"], row["op_row"]) == ("cuLaunchKernelEx", "aten::mm")


def test_where_operators_begin_or_end_with_a_call_its_id_tells(
    tmp_path: Path,
) -> None:
    """In whole microseconds `mul` may begin with the call that `add` made at its end."""

    def operator_of(name: int) -> str:
        made = launch(7, 5, 1)
        made["args"]["External id"] = name
        (row,) = launched(
            tmp_path,
            op("aten::linear", 0, 9, **{"External id": 1}),
            op("aten::add", 3, 2, **{"External id": 2}),
            op("aten::mul", 5, 3, **{"External id": 3}),
            op("aten::relu", 5, 1, tid=2, **{"External id": 4}),
            op("aten::norm", 8, 1, **{"External id": 5}),
            made,
            kernel("k", 50, 10, 7),
        )
        return str(row["op_row"])

    assert operator_of(1) == "aten::linear"
    assert operator_of(2) == "aten::add"
    assert operator_of(3) == "aten::mul"
    assert operator_of(4) == "aten::mul", "another thread's"
    assert operator_of(5) == "aten::mul", "not yet open"


def test_a_graph_launch_owns_all_its_kernels(tmp_path: Path) -> None:
    rows = launched(
        tmp_path,
        call("cudaGraphLaunch", 9, 2, 5),
        kernel("a", 10, 2, 9),
        kernel("b", 12, 2, 9),
        kernel("c", 12, 2, 9, stream=8),
    )
    assert [(r["launch_row"], r["launch_by"]) for r in rows] == [("cudaGraphLaunch", "graph")] * 3


def test_external_id_where_no_operator_is_round_the_call(tmp_path: Path) -> None:
    early = op("aten::mm", 0, 3, **{"External id": 41})
    late = {**kernel("gemm", 50, 10, 7)}
    late["args"] = {**late["args"], "External id": 41}
    (row,) = launched(tmp_path, early, launch(7, 5, 2), late)
    assert (row["op_row"], row["op_by"]) == ("aten::mm", "external_id")
    assert row["launch_by"] == "correlation"


def test_flow_where_neither_call_nor_id_is_recorded(tmp_path: Path) -> None:
    arrow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 100, "tid": 1, "ts": 5}
    (row,) = launched(
        tmp_path, step(2, 0, 20), op("aten::mm", 0, 10), arrow, kernel("gemm", 50, 10, 7)
    )
    assert (row["op_row"], row["op_by"], row["step"]) == ("aten::mm", "flow", 2)
    assert row["launch_by"] is None


def test_a_call_that_was_recorded_counts_for_more_than_its_arrow(tmp_path: Path) -> None:
    """The arrow starts in another operator; and arrows of other kinds, or without a number, lead
    nowhere."""
    arrow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 100, "tid": 1, "ts": 15}
    others = [arrow | {"cat": "fwdbwd", "id": 8}, arrow | {"id": "x"}]
    rows = launched(
        tmp_path,
        op("aten::mm", 0, 10), op("aten::add", 12, 10), launch(7, 5), arrow, *others,
        kernel("gemm", 50, 10, 7), kernel("lost", 70, 10, 8),
    )  # fmt: skip
    by_name = [(r["op_row"], r["op_by"], r["launch_by"]) for r in rows]
    assert by_name[0] == ("aten::mm", "nesting", "correlation")
    assert by_name[1] == (None, None, None)


def test_the_main_thread_s_range_holds_for_what_autograd_launches(tmp_path: Path) -> None:
    (row,) = launched(
        tmp_path,
        span("backward", 0, 100, tid=1),
        op("AddmmBackward0", 5, 20, tid=2),
        launch(7, 6, 2, tid=2),
        kernel("gemm", 50, 10, 7),
    )
    assert (row["annotation_row"], row["op_row"]) == ("backward", "AddmmBackward0")


def test_carried_in_is_what_precedes_the_first_own_launch_on_its_stream(tmp_path: Path) -> None:
    rows = launched(
        tmp_path,
        launch(100, 5, 2),
        kernel("before", 1, 2, 40),
        kernel("own", 10, 2, 100),
        kernel("lost", 20, 2, 41),
        kernel("alone, older", 20, 2, 42, stream=8),
        kernel("alone, newer", 30, 2, 200, stream=9),
    )
    assert [(r["carry_in"], r["launch_by"]) for r in rows] == [
        (True, None),
        (False, "correlation"),
        (False, None),
        (True, None),
        (False, None),
    ]


def test_forward_by_sequence_number_and_below_it(tmp_path: Path) -> None:
    def with_sequence(event: Event, sequence: int, forward_thread: int) -> Event:
        return {**event, "args": {"Sequence number": sequence, "Fwd thread id": forward_thread}}

    tables = trace(
        tmp_path,
        with_sequence(op("aten::linear", 0, 10), 5, 0),
        with_sequence(op("aten::addmm", 2, 5), 5, 0),
        with_sequence(op("evaluate: AddmmBackward0", 50, 20, tid=2), 5, 1),
        op("aten::mm", 55, 5, tid=2),
        with_sequence(op("SumBackward0", 80, 5, tid=2), 6, 1),
    ).tables
    names = tables["cpu_ops"]["name"].to_pylist()
    found = [
        (n, None if r["forward_row"] is None else names[r["forward_row"]], r["forward_by"])
        for n, r in zip(names, tables["op_links"].to_pylist(), strict=True)
    ]
    assert found == [
        ("aten::linear", None, None),
        ("aten::addmm", None, None),
        ("evaluate: AddmmBackward0", "aten::addmm", "sequence"),
        ("aten::mm", "aten::addmm", "parent"),
        ("SumBackward0", None, None),
    ]


def test_each_forward_thread_numbers_its_operators_itself(tmp_path: Path) -> None:
    def numbered(name: str, ts: float, tid: int, sequence: int, forward_thread: int = 0) -> Event:
        args = {"Sequence number": sequence, "Fwd thread id": forward_thread}
        return {**op(name, ts, 2, tid), "args": args}

    tables = trace(
        tmp_path,
        numbered("first.a", 0, 1, 5),
        numbered("first.b", 4, 1, 6),
        numbered("second.a", 1, 2, 6),
        numbered("second.b", 5, 2, 7),
        numbered("of first.b", 50, 3, 6, 1),
        numbered("of first.a", 53, 3, 5, 1),
        numbered("of second.b", 50, 4, 7, 2),
        numbered("of second.a", 53, 4, 6, 2),
    ).tables
    names = tables["cpu_ops"]["name"].to_pylist()
    forward = tables["op_links"]["forward_row"].to_pylist()
    found = {n: names[f] for n, f in zip(names, forward, strict=True) if f is not None}
    assert found == {f"of {name}": name for name in names[:4]}


def test_launch_links_count_what_each_call_launched(tmp_path: Path) -> None:
    tables = trace(
        tmp_path,
        step(1, 0, 30),
        op("aten::mm", 0, 10),
        launch(7, 2, 2),
        call("cudaGraphLaunch", 8, 20, 2),
        kernel("a", 40, 1, 7),
        kernel("b", 41, 1, 8),
        kernel("c", 42, 1, 8),
    ).tables
    rows = tables["launch_links"].to_pylist()
    assert [(r["kernels"], r["op_row"], r["step"]) for r in rows] == [(1, 0, 1), (2, None, 1)]


def spans_of(rows: list[tuple[int, int, int]]) -> Nested:
    thread, start, length = np.array(rows, np.int64).T
    return Nested(thread.astype(np.int32), start, start + length)


def plainly_around(rows: list[tuple[int, int, int]], thread: int, at: int) -> int:
    """Innermost by a stack: what begins later lies inside what is open then."""
    stack: list[int] = []
    order = sorted(range(len(rows)), key=lambda k: (rows[k][1], -rows[k][2], k))
    for k in order:
        if rows[k][0] != thread or rows[k][1] > at:
            continue
        while stack and rows[stack[-1]][1] + rows[stack[-1]][2] <= rows[k][1]:
            stack.pop()
        stack.append(k)
    while stack and rows[stack[-1]][1] + rows[stack[-1]][2] <= at:
        stack.pop()
    return stack[-1] if stack else NONE


@pytest.mark.parametrize("climb", [0, 1, 32])
@given(rows=SPANS, queries=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 45)), min_size=1))
def test_around_against_a_plain_twin(
    climb: int, rows: list[tuple[int, int, int]], queries: list[tuple[int, int]]
) -> None:
    thread, at = np.array(queries, np.int64).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_CLIMB", climb)
        found = spans_of(rows).around(thread.astype(np.int32), at)
    assert found.tolist() == [plainly_around(rows, t, a) for t, a in queries]


def test_very_deep_nesting_stays_quick() -> None:
    deep = 4_000  # deeper is cut
    nested = Nested(np.zeros(deep, np.int32), np.arange(deep), 2 * deep - np.arange(deep))
    found = nested.around(np.zeros(deep, np.int32), np.arange(deep, 2 * deep))
    assert found.tolist() == list(range(deep - 1, -1, -1))


def test_empty_tables() -> None:
    empty = {n: make(n, []) for n in ("kernels", "launches", "cpu_ops", "annotations", "flows")}
    ops = links.op_links(empty["cpu_ops"], empty["annotations"])
    assert len(ops) == 0
    found = links.kernel_links(
        empty["kernels"],
        empty["launches"],
        empty["cpu_ops"],
        empty["annotations"],
        empty["flows"],
        ops,
    )
    assert len(found) == 0


@pytest.mark.parametrize(
    ("file", "activities", "carried", "carried_pct"),
    [
        ("h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 1707, 509, 30.1),
        ("mi300/resnet_act_checkpoint.json.gz", 3653, 968, 31.8),
    ],
)
def test_carried_in_of_public_traces(
    shared: Path, file: str, activities: int, carried: int, carried_pct: float
) -> None:
    tables = open_trace(shared / "traces/tracelens" / file, OpenOptions(cache=False)).tables
    kernels, found = tables["kernels"].to_pylist(), tables["kernel_links"].to_pylist()
    assert len(found) == activities
    length = [k["end_ns"] - k["start_ns"] for k in kernels]
    early = [n for n, r in zip(length, found, strict=True) if r["carry_in"]]
    assert len(early) == carried
    assert 100 * sum(early) / sum(length) == pytest.approx(carried_pct, abs=0.1)
    assert all(r["launch_row"] is not None for r in found if not r["carry_in"])


def test_a_captured_decode_step_is_linked_through_its_graph(shared: Path) -> None:
    folder = shared / "traces/tracelens/inference/sglang_decode"
    tables = open_trace(folder / "sglang_Qwen3-8B_decode.json.gz", OpenOptions(cache=False)).tables
    assert Counter(tables["kernel_links"]["launch_by"].to_pylist()) == {
        "graph": 544,
        "correlation": 14,
    }


@pytest.mark.parametrize(
    ("file", "arrows"),
    [
        ("hta/ns_resolution_trace", 905),
        ("hta/nccl_parser_config", 543),
        ("tracelens/mi300/resnet_act_checkpoint.json.gz", 213),
    ],
)
def test_forward_operators_are_those_of_kineto_s_arrows(
    shared: Path, file: str, arrows: int
) -> None:
    """Each arrow leads from the start of a forward operator to the start of its backward one."""
    tables = open_trace(shared / "traces" / file, OpenOptions(cache=False)).tables
    ops, forward = tables["cpu_ops"].to_pylist(), tables["op_links"]["forward_row"].to_pylist()
    rows: dict[tuple[str, int], list[int]] = {}
    for row, operator in enumerate(ops):
        rows.setdefault((operator["thread"], operator["start_ns"]), []).append(row)
    ends: dict[str, dict[bool, list[int]]] = {}
    for flow in tables["flows"].to_pylist():
        if flow["category"] == "fwdbwd":
            at = rows[flow["thread"], flow["time_ns"]]
            ends.setdefault(flow["flow"], {})[flow["is_start"]] = at
    assert len(ends) == arrows
    for pair in ends.values():
        assert {forward[row] for row in pair[False]} & set(pair[True])
