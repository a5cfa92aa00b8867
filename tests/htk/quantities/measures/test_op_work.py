"""Which operator answers for an activity: a tree of calls on two ranks, worked out by hand.

Products are [4,8] by [8,6]: 384 operations. What vendors' operators do is not known.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.types import NONE
from htk.physics.op_costs.call import Cost
from htk.quantities.measures.op_work import OperatorWork, coverage_facts, in_tf32_by_name, tf32_rows
from tests.tables import make

FLOPS = 2 * 4 * 8 * 6
SHAPED = {
    "input_dims": json.dumps([[4, 8], [8, 6]]),
    "input_types": json.dumps(["c10::BFloat16", "c10::BFloat16"]),
    "concrete_inputs": json.dumps(["", ""]),
}
# (name, caller); a rank's calls stand one behind the other, callers first.
TREE = [
    ("aten::matmul", None),  # 0: what its vendor's operator launches is its own
    ("vendor::product", 0),
    ("aten::matmul", None),  # 2: a known product launches in it too
    ("aten::mm", 2),
    ("vendor::pad", 2),
    ("vendor::outer", None),  # 5: nobody above is known
    ("aten::mm", None),  # 6: communicates, and computes
]
# (operator, kind, length, name); None: launched outside of operators.
WORK: list[tuple[int | None, str, int, str]] = [
    (1, "compute", 10, "gemm"),
    (3, "compute", 20, "cutlass_tensorop_s1688gemm_128x128"),
    (4, "compute", 40, "pad"),
    (5, "compute", 80, "outer"),
    (6, "compute", 160, "gemm"),
    (6, "comm", 320, "ncclDevKernel_AllReduce"),
    (None, "compute", 640, "lonely"),
    (1, "compute", 1280, "gemm"),
]
RANKS = (3, 5)


def depth(k: int) -> int:
    caller = TREE[k][1]
    return 0 if caller is None else 1 + depth(caller)


def tables(**links: Any) -> dict[str, pa.Table]:
    """The tree and its work on both ranks; those of the second follow those of the first."""
    ops, op_links, kernels, kernel_links = [], [], [], []
    for place, rank in enumerate(RANKS):
        base = place * len(TREE)
        for k, (name, caller) in enumerate(TREE):
            shaped = SHAPED if name.startswith("aten") else {}
            ops.append(
                {"rank": rank, "name": name, "process": "1", "thread": "1",
                 "start_ns": 100 * k, "end_ns": 100 * k + 50, **shaped}
            )  # fmt: skip
            parent = None if caller is None else base + caller
            op_links.append({"parent_row": parent, "depth": depth(k), "thread_index": place})
        for operator, kind, length, name in WORK:
            kernels.append(
                {"rank": rank, "kind": kind, "name": name, "start_ns": 0, "end_ns": length}
            )
            row = None if operator is None else base + operator
            kernel_links.append({"op_row": row, "carry_in": False, **links})
    return {
        "cpu_ops": make("cpu_ops", ops),
        "op_links": make("op_links", op_links),
        "kernels": make("kernels", kernels),
        "kernel_links": make("kernel_links", kernel_links),
        "launches": make("launches", []),
        "launch_links": make("launch_links", []),
        "annotations": make("annotations", []),
        "op_passes": make("op_passes", [{"recomputed": k == 3} for k in range(len(ops))]),
    }


@pytest.fixture(scope="module")
def given() -> dict[str, pa.Table]:
    return tables()


@pytest.fixture(scope="module")
def work(given: dict[str, pa.Table]) -> OperatorWork:
    return OperatorWork.from_tables(given)


def test_the_innermost_known_operator_answers_and_nothing_counts_twice(work: OperatorWork) -> None:
    """Of 0 the vendor's launch; of 2 none, for the product in it answers for its own."""
    first = [0, 3, 4, 5, 6, 6, NONE, 0]
    assert work.row.tolist() == [*first, *(k if k == NONE else k + len(TREE) for k in first)]
    modelled = [True, True, False, False, True, False, False, True]
    assert work.modelled.tolist() == modelled * 2


def test_what_a_call_costs(work: OperatorWork) -> None:
    for activity in np.flatnonzero(work.modelled).tolist():
        cost = work.costs[work.kind[activity]]
        assert isinstance(cost, Cost)
        assert (cost.flops, cost.bytes) == (FLOPS, 2 * (32 + 48 + 24))
    assert work.length.tolist() == [length for *_, length, _ in WORK] * 2
    assert np.flatnonzero(work.recompute).tolist() == [3]
    assert (work.replay == NONE).all()


def test_each_call_is_counted_at_its_first_activity(work: OperatorWork) -> None:
    """Operator 0 answers for two activities and was called once, on each rank."""
    rows, first = work.first_activity(np.ones(len(work.row), bool))
    many, kernels = len(TREE), len(WORK)
    assert dict(zip(rows.tolist(), first.tolist(), strict=True)) == {
        0: 0, 3: 1, 4: 2, 5: 3, 6: 4,
        many: kernels, many + 3: kernels + 1, many + 4: kernels + 2, many + 5: kernels + 3,
        many + 6: kernels + 4,
    }  # fmt: skip
    last = np.arange(len(work.row)) >= kernels
    assert work.first_activity(last)[0].tolist() == [many, many + 3, many + 4, many + 5, many + 6]


def test_what_no_model_covers_is_told_by_reason(
    work: OperatorWork, given: dict[str, pa.Table]
) -> None:
    missing = work.missing(given["kernels"], given["kernel_links"])
    assert missing.pop("communication") == 2 * 320
    assert missing.pop("launched outside operators") == 2 * 640
    assert sum(missing.values()) == 2 * (40 + 80), "of the vendor's operators"
    facts = coverage_facts(work, given["cpu_ops"], given["kernels"], given["kernel_links"])
    total, comm, known = 2550, 320, 10 + 20 + 160 + 1280
    assert facts["modelled_pct_of_device_time"] == round(100 * known / total, 2)
    own = facts["modelled_pct_of_time_launched_here_less_communication"]
    assert own == round(100 * known / (total - comm), 2)
    assert facts["operators_without_model_ns"] == {
        "aten::mm": 640, "vendor::outer": 160, "vendor::pad": 80
    }  # fmt: skip


def test_what_was_launched_before_the_recording_or_by_a_graph() -> None:
    for links, reason in (
        ({"op_row": None, "carry_in": True}, "launched before the recording"),
        ({"op_row": None, "launch_by": "graph"}, "in CUDA graphs"),
    ):
        changed = tables(**links)
        missing = OperatorWork.from_tables(changed).missing(
            changed["kernels"], changed["kernel_links"]
        )
        assert missing == {reason: 2 * (2550 - 320), "communication": 2 * 320}


def test_products_in_tf32_are_told_by_the_names_of_their_kernels(
    work: OperatorWork, given: dict[str, pa.Table]
) -> None:
    assert np.flatnonzero(tf32_rows(given["kernels"], work, 2 * len(TREE))).tolist() == [
        3, 3 + len(TREE)
    ]  # fmt: skip
    assert in_tf32_by_name("sm80_xmma_gemm_f32f32_tf32f32_f32")
    assert not in_tf32_by_name("cutlass_tensorop_bf16_s16816gemm_bf16_128x64")
