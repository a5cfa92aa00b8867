"""The real eight-rank set: integer microseconds, no sequence numbers, no process groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from htk.answers.ask import ask_trace
from htk.quantities.derived.match import collective_matches
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

Row = dict[str, Any]


@pytest.fixture(scope="module")
def dlrm(shared: Path) -> Trace:
    return open_trace(str(shared / "traces/dlrm_8rank"), OpenOptions(cache=False))


def rows(trace: Trace, name: str, **options: Any) -> list[Row]:
    return ask_trace(trace, name, **options).table.to_pylist()


def test_every_collective_is_matched_and_adds_up(dlrm: Trace) -> None:
    found = rows(dlrm, "collective_times")
    assert len(found) == 64
    assert all(r["members_present"] == 8 and r["reason"] is None for r in found)
    assert all(r["wait_ns"] + r["transfer_ns"] == r["end_ns"] - r["start_ns"] for r in found)
    assert all(r["group"] is None and r["seq"] is None for r in found)


def test_the_last_one_is_named(dlrm: Trace) -> None:
    last = {r["match"]: r["last_rank"] for r in rows(dlrm, "collective_times")}
    assert [last[k] for k in range(8)] == [7, 7, 7, 7, 7, 5, 5, 4]


def test_most_of_it_is_waiting(dlrm: Trace) -> None:
    found = rows(dlrm, "comm_wait")
    assert [round(r["wait_pct"]) for r in found] == [96, 98, 94, 98, 97, 97, 94, 88]
    assert all(r["wait_ns"] + r["transfer_ns"] == r["comm_ns"] for r in found)


def test_only_what_all_recordings_hold_is_blamed(dlrm: Trace) -> None:
    arrivals = {r["match"]: r for r in rows(dlrm, "late_arrivals")}
    assert arrivals[0]["before_window"] and arrivals[0]["blamed_rank"] is None
    assert [arrivals[k]["blamed_rank"] for k in range(1, 8)] == [7, 7, 7, 7, 5, 5, 4]


def test_clocks_agree_within_microseconds(dlrm: Trace) -> None:
    found = rows(dlrm, "clock_alignment")
    assert {r["aligned_with"] for r in found} == {0}
    assert max(abs(r["offset_ns"]) for r in found) < 3000
    assert max(r["residual_ns"] for r in found) < 3000


def test_ranks_of_one_host_share_a_clock(dlrm: Trace) -> None:
    """No host is recorded, but their offsets agree within what their ends scatter."""
    assert {r["clock"] for r in rows(dlrm, "clock_alignment")} == {0}
    result = ask_trace(dlrm, "collective_times")
    assert result.coverage["clock_alignment"] == "not needed"
    found = result.table.to_pylist()
    assert all(r["aligned_start_ns"] == r["start_ns"] for r in found)
    assert {r["wait_ns_sigma"] for r in found} == {0}


def test_exposed_communication_splits_into_wait_and_transfer(dlrm: Trace) -> None:
    split = {r["rank"]: r for r in rows(dlrm, "comm_wait")}
    for row in rows(dlrm, "time_breakdown"):
        mine = split[row["rank"]]
        exposed = mine["exposed_wait_ns"] + mine["exposed_transfer_ns"]
        assert exposed + mine["exposed_undetermined_ns"] == row["exposed_comm_ns"]


def _without(table: pa.Table, keep: Callable[[Row], bool]) -> pa.Table:
    return table.filter(pa.array([keep(r) for r in table.to_pylist()]))


@pytest.mark.parametrize("gone", [0, 3, 7])
def test_without_one_rank_the_others_match_alike(dlrm: Trace, gone: int) -> None:
    whole = dlrm.tables["collectives"]
    rest = whole.filter(pc.not_equal(whole["rank"], gone))
    found = collective_matches(rest, dlrm.tables["rank_windows"], dlrm.tables["ranks"])
    before = dlrm.tables["collective_matches"].filter(pc.not_equal(whole["rank"], gone))
    assert found["match"].to_pylist() == before["match"].to_pylist()
    assert set(found["members_present"].to_pylist()) == {7}
    if gone != 7:  # the last one of most is still there
        same = pc.is_in(before["last_rank"], pa.array([7]))
        assert found.filter(same)["wait_ns"].equals(before.filter(same)["wait_ns"])


@pytest.mark.parametrize("rank", [0, 5])
def test_without_the_first_collective_of_one_rank(dlrm: Trace, rank: int) -> None:
    whole, before = dlrm.tables["collectives"], dlrm.tables["collective_matches"].to_pylist()
    first = min(r["start_ns"] for r in whole.to_pylist() if r["rank"] == rank)
    keep = [not (r["rank"] == rank and r["start_ns"] == first) for r in whole.to_pylist()]
    rest = whole.filter(pa.array(keep))
    found = collective_matches(rest, dlrm.tables["rank_windows"], dlrm.tables["ranks"]).to_pylist()
    for now, then in zip(found, (b for b, k in zip(before, keep, strict=True) if k), strict=True):
        assert now["match"] == then["match"]
        assert now["members_present"] == (7 if then["match"] == 0 else 8)
        assert now["wait_ns"] == then["wait_ns"]  # rank 7 is the last one of the first


def test_a_choice_of_ranks_or_times_changes_no_wait(dlrm: Trace) -> None:
    whole = {(r["rank"], r["event"]): r for r in rows(dlrm, "collective_times")}
    origin = dlrm.origin_ns
    late = sorted(r["start_ns"] for r in whole.values())[40] - origin
    found = rows(dlrm.sel(ranks=[0, 3]), "collective_times")
    assert found and len(found) < 64
    assert all(r == whole[r["rank"], r["event"]] for r in found)
    found = rows(dlrm.sel(ranks=[2], from_ns=late), "collective_times")
    of_all = [r for r in found if r["members_present"] == 8]  # others have ranks before the time
    assert 0 < len(of_all) < 64
    numbered = [{**whole[r["rank"], r["event"]], "match": r["match"]} for r in of_all]
    assert of_all == numbered
    costs = {r["rank"]: r["cost_to_others_ns"] for r in rows(dlrm, "comm_wait")}
    (only,) = rows(dlrm.sel(ranks=[7]), "comm_wait")
    assert only["cost_to_others_ns"] == costs[7] > 0
    assert len(rows(dlrm.sel(ranks=[5]), "clock_alignment")) == 1
