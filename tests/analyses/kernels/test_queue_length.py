"""How much launched work waits: by hand, against a plain twin, and as HTA has it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.kernels.queue_length import queue_length
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import open_trace
from tests.analyses.kernels.hta import expected, kept
from tests.tables import make

LAUNCHED = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 15), st.integers(7, 8)), min_size=1, max_size=20
)


def tables(rows: list[tuple[int, int, int, int]]) -> Any:
    """Of (launch, call length, start, stream)."""
    kernels = [{"stream": q, "start_ns": s, "end_ns": s + 1} for _, _, s, q in rows]
    links = [
        {"launch_row": k, "launch_start_ns": at, "launch_end_ns": at + d}
        for k, (at, d, _, _) in enumerate(rows)
    ]
    calls = [{"name": "cudaLaunchKernel", "start_ns": at, "end_ns": at + d} for at, d, _, _ in rows]
    return make("kernels", kernels), make("kernel_links", links), make("launches", calls)


def test_by_hand() -> None:
    """Queue: 1 from 0, 2 from 10, 1 from 20, 0 from 30, then 1 from 40 to 50."""
    rows = [(0, 1, 20, 7), (10, 1, 30, 7), (40, 1, 50, 7)]
    (stream, device) = queue_length(*tables(rows)).to_pylist()
    assert (stream["stream"], device["stream"]) == (7, None)
    assert (stream["launched"], stream["length_max"]) == (3, 2)
    assert stream["length_mean"] == (10 * 1 + 10 * 2 + 10 * 1 + 0 + 10 * 1) / 50
    assert stream["empty_pct"] == 20
    assert (device["blocked_ns"], stream["blocked_ns"]) == (0, None)


def test_a_call_held_up_by_a_full_queue() -> None:
    """A hundred quick launches fill the queue, the next takes 100 times as long."""
    quick = [(10 * k, 5, 10_000 + k, 7) for k in range(100)]
    (_, device) = queue_length(*tables([*quick, (2000, 500, 20_000, 7)])).to_pylist()
    assert (device["length_max"], device["blocked_calls"]) == (101, 1)
    assert device["blocked_ns"] == 500 - 10 * 5
    (_, device) = queue_length(*tables([*quick[:9], (2000, 500, 20_000, 7)])).to_pylist()
    assert device["blocked_ns"] == 0  # ten launches fill no queue
    slow_first = [(0, 500, 10_000, 7), *[(1000 + 10 * k, 5, 20_000, 7) for k in range(100)]]
    (_, device) = queue_length(*tables(slow_first)).to_pylist()
    assert device["blocked_ns"] == 0  # long, but the queue was empty


def test_a_graph_is_one_launch() -> None:
    kernels = [{"stream": 7, "start_ns": 10 + k, "end_ns": 11 + k} for k in range(100)]
    links = [{"launch_row": 0, "launch_start_ns": 0, "launch_end_ns": 5}] * 100
    calls = [{"name": "cudaGraphLaunch", "start_ns": 0, "end_ns": 5}]
    found = queue_length(
        make("kernels", kernels), make("kernel_links", links), make("launches", calls)
    )
    assert found["length_max"].to_pylist() == [1, 1]


@given(LAUNCHED)
def test_against_a_plain_twin(rows: list[tuple[int, int, int]]) -> None:
    found = queue_length(*tables([(at, 1, at + wait, q) for at, wait, q in rows])).to_pylist()
    for row in found:
        mine = [(at, at + wait) for at, wait, q in rows if row["stream"] in (None, q)]
        low, high = min(a for a, _ in mine), max(b for _, b in mine)
        lengths = [sum(a <= t < b for a, b in mine) for t in range(low, high)]
        assert row["launched"] == len(mine)
        if lengths:
            assert row["length_mean"] == pytest.approx(sum(lengths) / len(lengths))
            assert row["empty_pct"] == pytest.approx(100 * lengths.count(0) / len(lengths))
            assert row["length_max"] >= max(lengths)


@pytest.mark.parametrize(
    ("trace", "name", "rank", "graphs"),
    [
        ("trace_diff/control", "trace_diff/control", 3, 0),
        ("trace_diff/test", "trace_diff/test", 1, 10),
        ("trace_filter/sampled_rank-0.json.gz", "trace_filter", 0, 0),
    ],
)
def test_as_hta_on_whole_microseconds(
    shared: Path, trace: str, name: str, rank: int, graphs: int
) -> None:
    """The longest queue is the same; means over events differ in the order of equal times, and
    graph launches, which it leaves out, are counted."""
    tables_ = kept(shared, trace)
    found = {
        r["stream"]: r
        for r in queue_length(
            *(tables_[t] for t in ("kernels", "kernel_links", "launches"))
        ).to_pylist()
    }
    for row in expected(shared, name)["queue_length_summary"]:
        if row["rank"] != rank:
            continue
        ours = found[row["stream"]]
        assert ours["length_max"] == row["queue_length_max"]
        assert ours["event_length_mean"] == pytest.approx(row["queue_length_mean"], rel=0.005)
        extra = graphs if row["stream"] == 7 else 0
        assert 2 * (ours["launched"] - extra) == row["queue_length_count"]


def test_a_full_queue_that_a_fixed_limit_misses(shared: Path) -> None:
    trace = open_trace(shared / "traces/hta/ns_resolution_trace")
    device = next(r for r in ask_trace(trace, "queue_length").to_pylist() if r["stream"] is None)
    assert device["length_max"] == 1022  # never 1,024
    assert device["blocked_calls"] > 500
