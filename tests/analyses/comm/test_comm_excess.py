"""Excess of simulated jobs with a planted slow adapter, and of a calm one."""

from pathlib import Path
from typing import Any

import pytest

from htk.analyses.comm.collective_times import collective_times
from htk.analyses.comm.comm_summary import comm_summary
from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

JOB = {"model": "gpt3-126m", "layers": 3, "seq": 512, "micro_batch": 2, "steps": 2, "stacks": False}
RAILS = {"nodes": 2, "gpus_per_node": 4, "strategy": "hybrid_shard"}
VIEWS = ("group", "size", "rank", "node", "call")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return job(tmp_path_factory.mktemp("slow"), plants=("slow_link:node=1,nic=2",))


def job(folder: Path, **more: Any) -> Trace:
    simulate_job(check_config(Config(**(JOB | RAILS | {"seed": 3} | more))), folder)
    return open_trace(folder, OpenOptions(cache=False))


def test_the_slow_rail_and_its_ranks_have_the_excess(slow: Trace) -> None:
    rails = ask_trace(slow, "comm_excess", by="rail").to_pylist()
    assert [r["rail"] for r in rails][:1] == [2]
    assert rails[0]["excess_pct"] == pytest.approx(150, abs=15)  # planted: 2.5 times as long
    assert all(abs(r["excess_pct"]) < 5 for r in rails[1:])
    first, *_ = ask_trace(slow, "comm_excess").to_pylist()
    assert first["group_ranks"] == "[2,6]"
    assert first["scope"] == "across nodes"
    assert first["busbw_gbps"] * 2.5 == pytest.approx(first["expected_gbps"], rel=0.05)
    ranks = ask_trace(slow, "comm_excess", by="rank", n=2).to_pylist()
    assert {r["rank"] for r in ranks} == {2, 6}
    nodes = ask_trace(slow, "comm_excess", by="node").to_pylist()
    across = [r["excess_ns"] for r in nodes if r["scope"] == "across nodes"]
    assert len(across) == 2  # which end is slow, cannot be told
    assert across[0] == pytest.approx(across[1], abs=2)


def test_every_view_adds_up_to_the_same(slow: Trace) -> None:
    sums = {}
    for by in VIEWS:
        table = ask_trace(slow, "comm_excess", by=by, n=0)
        rows = table.to_pylist()
        sums[by] = sum(r["excess_ns"] for r in rows)
        assert all(r["excess_ns"] == r["span_ns"] - r["expected_ns"] for r in rows)
        assert sums[by] == pytest.approx(coverage_of(table)["excess_ns"], abs=100)
    first = ask_trace(slow, "comm_excess", by="call", n=1).to_pylist()[0]
    times = ask_trace(slow, "collective_times").to_pylist()
    rows = [r for r in times if r["match"] == first["match"]]
    start = max(r["aligned_start_ns"] for r in rows)
    assert first["aligned_start_ns"] == start
    assert first["span_ns"] == max(r["aligned_end_ns"] for r in rows) - start


def test_a_calm_job_has_little_excess_and_waiting_is_none(tmp_path: Path) -> None:
    late = job(tmp_path, plants=("straggler:rank=3,factor=1.5",))
    for by in ("group", "rail"):
        rows = ask_trace(late, "comm_excess", by=by, baseline="trace").to_pylist()
        assert rows
        assert all(r["excess_pct"] < 6 for r in rows)


def keyed(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by what they stand for; calls by their order, as clocks number them differently."""
    columns = ("group_ranks", "scope", "type", "size_bytes", "rail")
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: r["aligned_start_ns"] or 0):
        key = tuple(row[c] for c in columns)
        by_key[*key, sum(other[:-1] == key for other in by_key)] = row
    return by_key


@pytest.mark.parametrize("seed", range(2))
def test_the_clocks_leave_as_much_uncertainty_as_is_said(seed: int, tmp_path: Path) -> None:
    """The same job with one clock for all has no error of clocks; within nodes there is none."""
    skew = {"clock_offset_us": 10_000.0, "clock_drift_ppm": 20.0}
    traces = []
    for name, more in (("true", {}), ("skewed", skew)):
        folder = tmp_path / name
        folder.mkdir()
        traces.append(job(folder, seed=seed, stagger_us=500.0, nodes=3, layers=2, **more))
    for by in ("call", "group", "size", "rail"):
        true, skewed = (keyed(ask_trace(t, "comm_excess", by=by, n=0).to_pylist()) for t in traces)
        assert true.keys() == skewed.keys() and len(true) > 2
        for key, row in skewed.items():
            error = abs(row["excess_ns"] - true[key]["excess_ns"])
            drifted = 2e-5 * (row["span_ns"] + row["expected_ns"])
            assert error <= drifted + 8 * row["collectives"] + 3 * row["excess_ns_sigma"]
            assert (row["excess_ns_sigma"] == 0) == (row["scope"] == "node")
            assert row["excess_ns_sigma"] < 5000 * row["collectives"]


def test_without_one_clock_the_uncertainty_is_not_known(tmp_path: Path) -> None:
    trace = job(tmp_path, clock_offset_us=10_000.0)
    rows = ask_trace(trace, "comm_excess", align=False).to_pylist()
    assert rows and {r["excess_ns_sigma"] for r in rows} == {None}


def test_what_is_compared_with_itself_is_said(tmp_path: Path) -> None:
    """All ranks are one group: a network that is slow for all is not seen in the trace alone."""
    alone = job(tmp_path, strategy="full_shard", plants=("slow_link",))
    table = ask_trace(alone, "comm_excess", baseline="trace")
    facts = coverage_of(table)
    assert facts["compared_with_their_own_group_alone"] > 0
    assert table.to_pylist()[0]["excess_pct"] < 10
    by_rates = ask_trace(alone, "comm_excess", baseline="links", inter_gbps=100.0).to_pylist()
    assert by_rates[0]["excess_pct"] > 50
    assert by_rates[0]["baseline"] == "link rates"


def test_a_summary_says_what_its_bandwidth_is_over(ask: Any, call: Any) -> None:
    pair = {"group_ranks": "[0,1]", "group_size": 2, "in_bytes": 1000}
    timed = call(0, 0, 100, source="inspector", duration_ns=50, **pair)
    (alone,) = ask(comm_summary, {"collectives": [timed]}).to_pylist()
    assert (alone["busbw_gbps_p50"], alone["bandwidth_over"]) == (20.0, "own duration")
    both = [call(r, 10 * r, 110, **pair) for r in (0, 1)]
    (whole,) = ask(comm_summary, {"collectives": both}).to_pylist()
    assert (whole["busbw_gbps_p50"], whole["bandwidth_over"]) == (10.0, "all ranks")
    (lone,) = ask(comm_summary, {"collectives": both[:1]}).to_pylist()
    assert (lone["busbw_gbps_p50"], lone["bandwidth_over"]) == (None, None)


def test_bytes_that_leave_a_node_stand_beside_each_call(ask: Any, call: Any) -> None:
    """Ring of four on two nodes: half of the hops lie between them."""
    ring = {"group_ranks": "[0,1,2,3]", "group_size": 4, "in_bytes": 1000}
    rows = [call(r, 0, 100, **ring) for r in range(4)]
    ranks = [{"rank": r, "host": "ab"[r // 2]} for r in range(4)]
    tables = {"collectives": rows, "ranks": ranks}
    for r in ask(collective_times, tables).to_pylist():
        assert (r["within_node_bytes"], r["across_nodes_bytes"]) == (750, 750)
    (summed,) = ask(comm_summary, tables).to_pylist()
    assert (summed["within_node_bytes"], summed["across_nodes_bytes"]) == (3000, 3000)
    (unknown,) = ask(comm_summary, {"collectives": rows}).to_pylist()
    assert (unknown["within_node_bytes"], unknown["across_nodes_bytes"]) == (None, None)
