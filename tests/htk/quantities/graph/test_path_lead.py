"""The time before a critical path is data loading where that fills half of it on its rank."""

from typing import Any

import pyarrow as pa
import pytest

from htk.quantities.graph.path_lead import BEFORE_THE_FIRST_CALL, LOADING_DATA, name_lead
from tests.tables import make

FETCH = {"name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}


@pytest.mark.parametrize("table", ["cpu_ops", "annotations"])
@pytest.mark.parametrize(
    ("start_ns", "end_ns", "lead"),
    [(1150, 1185, LOADING_DATA), (1186, 1300, BEFORE_THE_FIRST_CALL)],
    ids=["half of it", "less than half"],
)
def test_half_of_the_time_decides(table: str, start_ns: int, end_ns: int, lead: str) -> None:
    tables = _tables(table, {"start_ns": start_ns, "end_ns": end_ns})
    assert name_lead(tables, 0, 1170, 1200) == lead


def test_two_fetches_at_once_count_once() -> None:
    fetches = [{"start_ns": 1170, "end_ns": 1180}, {"start_ns": 1172, "end_ns": 1182}]
    assert name_lead(_tables("cpu_ops", *fetches), 0, 1170, 1200) == BEFORE_THE_FIRST_CALL


def test_other_ranks_and_ranges_of_the_gpu_do_not_count() -> None:
    whole = {"start_ns": 1170, "end_ns": 1200}
    assert name_lead(_tables("cpu_ops", whole), 1, 1170, 1200) == BEFORE_THE_FIRST_CALL
    on_gpu = _tables("annotations", whole | {"on_gpu": True})
    assert name_lead(on_gpu, 0, 1170, 1200) == BEFORE_THE_FIRST_CALL


def test_ranges_are_on_the_clock_of_their_rank() -> None:
    """The rank's clock is 500 behind: what it calls 670 to 700 is 1170 to 1200."""
    clock = {"reference_ns": 0, "offset_ns": 500, "drift_ppm": 0.0, "aligned": True}
    tables = _tables("cpu_ops", {"start_ns": 670, "end_ns": 700})
    aligned = {**tables, "rank_clocks": make("rank_clocks", [clock])}
    assert name_lead(tables, 0, 1170, 1200) == BEFORE_THE_FIRST_CALL
    assert name_lead(aligned, 0, 1170, 1200) == LOADING_DATA


def test_no_time_holds_nothing() -> None:
    tables = _tables("cpu_ops", {"start_ns": 1100, "end_ns": 1300})
    assert name_lead(tables, 0, 1170, 1170) == BEFORE_THE_FIRST_CALL


def _tables(name: str, *fetches: dict[str, Any]) -> dict[str, pa.Table]:
    empty = {table: make(table, []) for table in ("cpu_ops", "annotations", "rank_clocks")}
    return {**empty, name: make(name, [FETCH | fetch for fetch in fetches])}
