"""The critical path of a small step, worked out on paper."""

from itertools import pairwise

import pyarrow as pa

from htk.verdicts.causes.critical_path import critical_path
from tests.htk.quantities.graph.small_step import rebuilt, step_tables
from tests.tables import answer_of, make


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
    assert all(b["start_ns"] == a["end_ns"] for a, b in pairwise(rows))
    assert sum(r["path_pct"] for r in rows) == 100 and all(r["count"] == 1 for r in rows)


def test_a_path_is_cut_to_its_step_and_says_what_precedes_its_first_call() -> None:
    """The step before ends at 1170; this one's first call is at 1200, its last kernel ends at
    1370."""
    rows = answer_of(critical_path, options={"step": 1, "by": "piece"}, **_read())
    assert (rows[0]["what"], rows[0]["path_ns"]) == ("host: before the first call", 30)
    assert (rows[0]["start_ns"], rows[-1]["end_ns"]) == (1170, 1370)
    assert sum(r["path_ns"] for r in rows) == 200


def test_what_precedes_the_path_is_data_loading_where_a_range_says_so() -> None:
    fetch = {"name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}
    tables = _read() | {"cpu_ops": make("cpu_ops", [fetch | {"start_ns": 1175, "end_ns": 1199}])}
    rows = answer_of(critical_path, options={"step": 1, "by": "piece"}, **tables)
    assert (rows[0]["what"], rows[0]["path_ns"]) == ("host: data loading", 30)


def test_what_ran_before_the_step_has_no_share_of_it() -> None:
    """Without marks the step is what the GPU ran, 150: launched 20 before it, which is no part."""
    kernels = [
        {"name": "a", "stream": 7, "start_ns": 1020, "end_ns": 1120, "correlation": 1},
        {"name": "b", "stream": 7, "start_ns": 1120, "end_ns": 1170, "correlation": 2},
    ]
    launches = [
        {"name": "cudaLaunchKernel", "start_ns": at, "end_ns": at + 10, "correlation": k}
        for k, at in ((1, 1000), (2, 1015))
    ]
    tables = {k: v for k, v in rebuilt(kernels, launches).items() if k in critical_path.reads}
    rows = answer_of(critical_path, options={"by": "piece"}, **tables)
    assert sum(r["path_ns"] for r in rows) == 150
    assert [(r["what"], r["path_ns"]) for r in rows if r["path_ns"]] == [
        ("compute", 100),
        ("compute", 50),
    ]


def _read() -> dict[str, pa.Table]:
    return {k: v for k, v in step_tables().items() if k in critical_path.reads}
