"""Bubbles of a pipeline stage, on paper."""

import pytest

from htk.analyses.run.pipeline_bubble import pipeline_bubble
from htk.base.errors import MissingTable
from tests.tables import answer_of, make

# Forward computes at 10–20 and 40–50, backward at 30–40 and 60–80, the optimizer at 90–95.
WORK = [(10, 20, 0), (30, 40, 1), (40, 50, 0), (60, 80, 1), (90, 95, 0)]


def one_stage(**more: object) -> list[dict]:
    kernels = [{"kind": "compute", "start_ns": s, "end_ns": e, "rank": 3} for s, e, _ in WORK]
    ops = [
        {"name": "aten::mm", "rank": 3},
        {"name": "autograd::engine::evaluate_function: MmBackward0", "rank": 3},
    ]
    receive = {"source": "kineto", "type": "recv", "rank": 3, "group_ranks": "[1,3]"}
    window = {"rank": 3, "step": 7, "start_ns": 0, "end_ns": 100, "complete": True}
    return answer_of(
        pipeline_bubble,
        kernels=make("kernels", kernels),
        kernel_links=make("kernel_links", [{"op_row": op} for _, _, op in WORK]),
        cpu_ops=make("cpu_ops", ops),
        op_links=make("op_links", [{"thread_index": 0}, {"thread_index": 1}]),
        collectives=make("collectives", [{**receive, "start_ns": 2, "end_ns": 12}]),
        step_windows=make("step_windows", [window]),
        **more,
    )


def test_parts_of_a_step() -> None:
    found = one_stage()
    assert [(r["part"], r["length_ns"], r["compute_ns"], r["bubble_ns"]) for r in found] == [
        ("warm-up", 30, 10, 20),
        ("steady", 20, 20, 0),
        ("cool-down", 30, 20, 10),
        ("rest", 20, 5, 15),
    ]
    assert [r["p2p_ns"] for r in found] == [8, 0, 0, 0]
    assert {(r["rank"], r["step"], r["stage"]) for r in found} == {(3, 7, 1)}
    assert sum(r["bubble_of_step_pct"] for r in found) == pytest.approx(45)


def test_without_operators_no_part_is_told() -> None:
    """All of the step would be warm-up."""
    with pytest.raises(MissingTable, match="CPU operators"):
        one_stage(kernel_passes=make("kernel_passes", [{"phase": "other"}] * len(WORK)))


def test_no_pipeline() -> None:
    with pytest.raises(MissingTable, match="no pipeline"):
        answer_of(pipeline_bubble)
