"""The analyses of operators on two ranks whose figures can be worked out on paper."""

import pytest

from htk.base.errors import MissingTable
from htk.faces.notebook.session import Session


def test_op_breakdown(two_ranks: Session) -> None:
    add, mm = two_ranks.op_breakdown().to_pylist()
    assert (add["op"], add["count"], add["cpu_total_ns"]) == ("aten::add", 4, 20_000)
    assert (mm["op"], mm["device_total_ns"], mm["kernels_per_call"]) == ("aten::mm", 120_000, 1)
    assert add["device_self_ns"] == 140_000
    assert add["device_time_pct"] + mm["device_time_pct"] == pytest.approx(100)


def test_op_tree(two_ranks: Session) -> None:
    rows = two_ranks.op_tree().to_pylist()
    assert [(r["path"], r["depth"], r["device_total_ns"]) for r in rows] == [
        ("aten::add", 0, 140_000),
        ("aten::mm", 0, 120_000),
    ]


def test_annotation_breakdown(two_ranks: Session) -> None:
    rows = two_ranks.annotation_breakdown().to_pylist()
    assert [(r["name"], r["count"], r["cpu_total_ns"], r["device_ns"]) for r in rows] == [
        ("ProfilerStep", 2, 200_000, 140_000),
        ("ProfilerStep", 2, 200_000, 120_000),
    ]


@pytest.mark.parametrize("name", ["module_breakdown", "python_hotspots"])
def test_what_was_not_recorded_is_asked_for(two_ranks: Session, name: str) -> None:
    with pytest.raises(MissingTable, match="with_stack=True"):
        two_ranks.ask(name)
