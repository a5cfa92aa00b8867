"""The critical path of a small step, worked out on paper."""

from itertools import pairwise

import pyarrow as pa

from htk.verdicts.causes.critical_path import critical_path
from tests.htk.quantities.graph.small_step import step_tables
from tests.tables import answer_of


def test_two_kernels_behind_each_other_bound_the_step() -> None:
    rows = {r["what"]: r for r in answer_of(critical_path, options={"step": 1}, **_read())}
    assert rows["compute"]["path_ns"] == 150
    assert rows["launch latency"]["path_ns"] == 20


def test_by_event_names_the_kernels() -> None:
    rows = answer_of(critical_path, options={"step": 1, "by": "event"}, **_read())
    assert [(r["name"], r["path_ns"]) for r in rows if r["what"] == "compute"] == [
        ("a", 100),
        ("b", 50),
    ]


def test_pieces_run_from_the_first_to_the_last() -> None:
    rows = answer_of(critical_path, options={"step": 1, "by": "piece", "n": 1}, **_read())
    assert [r["name"] for r in rows if r["what"] == "compute"] == ["a", "b"]
    assert all(b["first_ns"] == a["last_ns"] for a, b in pairwise(rows))
    assert sum(r["path_pct"] for r in rows) == 100 and all(r["count"] == 1 for r in rows)


def _read() -> dict[str, pa.Table]:
    return {k: v for k, v in step_tables().items() if k in critical_path.reads}
