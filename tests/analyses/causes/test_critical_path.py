"""The critical path of a small step, worked out on paper."""

import pyarrow as pa

from htk.analyses.causes.critical_path import critical_path
from tests.htk.small_step import step_tables
from tests.tables import ask


def test_two_kernels_behind_each_other_bound_the_step() -> None:
    rows = {r["what"]: r for r in ask(critical_path, options={"step": 1}, **_read())}
    assert rows["compute"]["path_ns"] == 150
    assert rows["launch latency"]["path_ns"] == 20


def test_by_event_names_the_kernels() -> None:
    rows = ask(critical_path, options={"step": 1, "by": "event"}, **_read())
    assert [(r["name"], r["path_ns"]) for r in rows if r["what"] == "compute"] == [
        ("a", 100),
        ("b", 50),
    ]


def _read() -> dict[str, pa.Table]:
    return {k: v for k, v in step_tables().items() if k in critical_path.reads}
