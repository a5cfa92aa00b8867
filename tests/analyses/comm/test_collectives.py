"""Questions about communication, of small tables worked out by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from htk.analyses.comm.alltoall_balance import alltoall_balance
from htk.analyses.comm.bucket_study import bucket_study
from htk.analyses.comm.collective_times import collective_times
from htk.analyses.comm.comm_excess import comm_excess
from htk.analyses.comm.comm_matrix import comm_matrix
from htk.analyses.comm.comm_model import comm_model
from htk.analyses.comm.comm_overlap_by_group import comm_overlap_by_group
from htk.analyses.comm.comm_progress import comm_progress
from htk.analyses.comm.comm_sources import comm_sources
from htk.analyses.comm.comm_summary import comm_summary
from htk.analyses.comm.comm_wait import comm_wait
from htk.analyses.comm.late_arrivals import late_arrivals
from htk.base.core.analysis import coverage_of
from htk.base.errors import MissingTable

Row = dict[str, Any]
Ask = Callable[..., Any]
Call = Callable[..., Row]
PAIR = {"group_ranks": "[0,1]", "group_size": 2}


def test_bandwidth_is_over_the_common_part(ask: Ask, call: Call) -> None:
    """1000 bytes of 2 ranks in 50 ns from last start to last end; 100 ns with waiting."""
    rows = [call(0, 0, 100, in_bytes=1000, **PAIR), call(1, 50, 100, in_bytes=1000, **PAIR)]
    first, second = ask(collective_times, {"collectives": rows}).to_pylist()
    assert first["algbw_gbps"] == second["algbw_gbps"] == 20.0
    assert first["busbw_gbps"] == 20.0  # factor 2·(2-1)/2
    assert first["duration_busbw_gbps"] == 10.0
    assert (first["wait_ns"], first["transfer_ns"]) == (50, 50)


def test_bandwidth_over_the_duration_of_one_rank_says_so(ask: Ask, call: Call) -> None:
    """A source that times one rank's call, where no other rank is known; and a profiler's call,
    whose duration holds waiting of unknown length: no bandwidth."""
    timed = call(0, 0, 100, in_bytes=1000, source="inspector", duration_ns=50, **PAIR)
    pair = [call(r, 200 + r, 300, in_bytes=1000, seq=2, **PAIR) for r in (0, 1)]
    alone, *both = ask(collective_times, {"collectives": [timed, *pair]}).to_pylist()
    assert (alone["busbw_gbps"], alone["bandwidth_over"]) == (20.0, "own duration")
    assert [r["bandwidth_over"] for r in both] == ["all ranks", "all ranks"]
    unmatched = [call(0, 0, 100, in_bytes=9, **PAIR)]
    (lone,) = ask(collective_times, {"collectives": unmatched}).to_pylist()
    assert (lone["busbw_gbps"], lone["bandwidth_over"]) == (None, None)


def test_scope_is_told_by_hosts(ask: Ask, call: Call) -> None:
    rows = [
        call(0, 0, 9, **PAIR),
        call(0, 10, 19, group="1", group_ranks="[0,2]", group_size=2),
        call(0, 20, 29, group="2", group_ranks="[0,9]", group_size=2),
    ]
    ranks = [{"rank": r, "host": h} for r, h in ((0, "a"), (1, "a"), (2, "b"), (9, None))]
    found = ask(collective_times, {"collectives": rows, "ranks": ranks})
    assert found["scope"].to_pylist() == ["node", "across nodes", None]


def test_a_collective_of_the_whole_world_needs_no_recorded_group(ask: Ask, call: Call) -> None:
    rows = [call(r, 0, 100, in_bytes=1000, group=None) for r in (0, 1)]
    ranks = [{"rank": r, "world_size": 2} for r in (0, 1)]
    found = ask(collective_times, {"collectives": rows, "ranks": ranks})
    assert found["busbw_gbps"].to_pylist() == [10.0, 10.0]
    assert found["group_size"].to_pylist() == [None, None]  # as recorded
    assert coverage_of(found)["not_recorded"]["group"] == 2


def test_what_an_answer_rests_on(ask: Ask, call: Call) -> None:
    """Three recorded ranks of four, one call without a partner, one of a silent sort."""
    rows = [call(r, 0, 9, group_size=4, in_bytes=5, inferred_columns="sizes") for r in range(3)]
    rows += [call(0, 20, 29, group_size=4, in_bytes=6), call(1, 30, 39, type="wait")]
    facts = coverage_of(ask(collective_times, {"collectives": rows}))
    assert (facts["collectives"], facts["matched"], facts["partly_inferred"]) == (5, 3, 3)
    assert facts["matches_lacking_members"] == 1
    assert facts["without_wait_because"] == {
        "ranks of its group are not recorded: known in part": 3,
        "no counterpart on the other ranks": 1,
        "moves nothing": 1,
    }


def test_aligned_times_are_shown(ask: Ask, call: Call) -> None:
    """Rank 1's clock is 1 ms ahead; it really came 20 ns late."""
    rows = [call(0, 0, 100), call(1, 1_000_020, 1_000_100)]
    raw = ask(collective_times, {"collectives": rows}, align=False)
    assert raw["wait_ns"].to_pylist() == [100, 0]
    assert raw["aligned_start_ns"].to_pylist() == raw["start_ns"].to_pylist()
    assert coverage_of(raw)["clock_alignment"] == "off"
    put = ask(collective_times, {"collectives": rows})
    assert put["wait_ns"].to_pylist() == [20, 0]
    assert put["clock_offset_ns"].to_pylist() == [0, -1_000_000]
    assert put["start_ns"].to_pylist() == [0, 1_000_020]
    assert put["aligned_start_ns"].to_pylist() == [0, 20]


def test_clocks_that_agree_within_their_error_are_left_as_recorded(ask: Ask, call: Call) -> None:
    """Ends scatter by microseconds: 100 ns between the clocks say nothing."""
    rows = []
    for k in range(40):
        end, scatter = 1_000_000 * (k + 1), 3000 * (-1) ** k
        rows += [call(0, end - 9000, end), call(1, end - 5000, end + scatter + 100)]
    put = ask(collective_times, {"collectives": rows})
    assert put["aligned_start_ns"].to_pylist() == put["start_ns"].to_pylist()
    assert put["wait_ns"].to_pylist()[:2] == [4000, 0]


def test_recordings_of_one_rank_share_no_time(ask: Ask, call: Call) -> None:
    """Two processes recorded the same time of one device: each has its own time."""
    rows = [call(0, 0, 100, cycle=cycle, group=f"of {cycle}") for cycle in (0, 1)]
    busy = {"rank": 0, "cycle": 1, "device": 0, "kind": "compute", "start_ns": 0, "end_ns": 30}
    found = ask(comm_overlap_by_group, {"collectives": rows, "activities": [busy]}).to_pylist()
    assert [(r["shared_ns"], r["exposed_ns"]) for r in found] == [(100, 100), (100, 70)]


# Waiting and blame: rank 1 computes 500 ns between two all-reduces, the others 100 ns.


def late_job(call: Call) -> list[Row]:
    first = [call(r, 1000, 1100) for r in (0, 1, 2)]
    return [*first, call(0, 1200, 1700), call(1, 1600, 1700), call(2, 1200, 1700)]


def test_who_waits_and_who_costs(ask: Ask, call: Call) -> None:
    found = {r["rank"]: r for r in ask(comm_wait, {"collectives": late_job(call)}).to_pylist()}
    assert [found[r]["wait_ns"] for r in (0, 1, 2)] == [400, 0, 400]
    assert [found[r]["cost_to_others_ns"] for r in (0, 1, 2)] == [0, 800, 0]
    assert [found[r]["lateness_ns"] for r in (0, 1, 2)] == [0, 400, 0]
    assert found[1]["arrived_last"] == 1  # the first is a tie, and goes to rank 0
    assert found[0]["wait_pct"] == pytest.approx(100 * 400 / 600)


def test_late_arrivals(ask: Ask, call: Call) -> None:
    worst = ask(late_arrivals, {"collectives": late_job(call)}, n=1).to_pylist()[0]
    assert (worst["blamed_rank"], worst["lateness_ns"]) == (1, 400)
    assert (worst["wait_total_ns"], worst["wait_ns_max"]) == (800, 400)


def test_what_began_before_a_recording_blames_nobody(ask: Ask, call: Call) -> None:
    rows = [call(0, 100, 500), call(1, 400, 500)]
    windows = [{"rank": 0, "cycle": 0, "start_ns": 0}, {"rank": 1, "cycle": 0, "start_ns": 300}]
    tables = {"collectives": rows, "rank_windows": windows}
    found = ask(comm_wait, tables).to_pylist()
    assert [r["wait_ns"] for r in found] == [300, 0]
    assert [r["cost_to_others_ns"] for r in found] == [0, 0]
    assert ask(late_arrivals, tables).to_pylist()[0]["blamed_rank"] is None


def test_one_rank_leaves_a_band(ask: Ask, call: Call) -> None:
    """Eleven equal calls of 100, 110, … 200 ns: all may have waited, but for the 40 ns in which 18
    kB pass a GPU's links; without the GPU's name nothing is known."""
    rows = [call(0, 1000 * k, 1000 * k + 100 + 10 * k, in_bytes=18_000) for k in range(11)]
    (found,) = ask(comm_wait, {"collectives": rows}).to_pylist()
    assert (found["matched"], found["wait_ns"], found["wait_pct"]) == (0, 0, None)
    assert (found["transfer_low_ns"], found["transfer_high_ns"]) == (0, 1650)
    gpu = [{"rank": 0, "device_name": "NVIDIA H100 80GB HBM3"}]  # 450 GB/s one way
    (found,) = ask(comm_wait, {"collectives": rows, "ranks": gpu}).to_pylist()
    assert found["transfer_low_ns"] == 11 * 40


# Exposure: compute from 40 to 60 on device 0; two groups' collectives overlap.


def overlapping(call: Call) -> dict[str, list[Row]]:
    rows = [
        call(0, 0, 100, group="a", group_size=2),
        call(0, 50, 150, group="b", group_size=2),
        call(1, 20, 100, group="a", group_size=2),
    ]
    span = {"rank": 0, "cycle": 0, "device": 0, "kind": "compute", "start_ns": 40, "end_ns": 60}
    return {"collectives": rows, "activities": [span]}


def test_an_instant_is_shared_by_what_runs(ask: Ask, call: Call) -> None:
    found = ask(comm_overlap_by_group, overlapping(call)).to_pylist()
    mine = {r["group"]: r for r in found if r["rank"] == 0}
    assert (mine["a"]["shared_ns"], mine["b"]["shared_ns"]) == (75, 75)  # 150 in all
    assert (mine["a"]["exposed_ns"], mine["b"]["exposed_ns"]) == (60, 70)  # 130 without compute
    assert (mine["a"]["exposed_wait_ns"], mine["a"]["exposed_transfer_ns"]) == (20, 40)
    assert mine["b"]["exposed_undetermined_ns"] == 70


def test_summary_counts_a_collective_once(ask: Ask, call: Call) -> None:
    rows = [call(r, 10 * r, 110, in_bytes=1500, **PAIR) for r in (0, 1)]
    rows += [call(r, 200, 300, in_bytes=64, **PAIR) for r in (0, 1)]
    ranks = [{"rank": r, "host": "a", "device_name": "NVIDIA H100 80GB"} for r in (0, 1)]
    tables = {"collectives": rows, "ranks": ranks}
    big, small = ask(comm_summary, tables).to_pylist()
    assert (big["count"], big["collectives"], big["in_bytes"]) == (2, 1, 3000)
    assert (big["size_from_bytes"], big["size_to_bytes"]) == (1024, 2047)
    assert (big["wait_ns"], big["transfer_ns"], big["comm_ns"]) == (10, 200, 210)
    assert big["busbw_gbps_p50"] == 15.0
    assert big["link_pct_p50"] == pytest.approx(100 * 15 / 450)
    assert small["size_from_bytes"] == 64
    (whole,) = ask(comm_summary, tables, by="type").to_pylist()
    assert (whole["count"], whole["collectives"], whole["group"]) == (4, 2, None)


# Matrix and balance


def test_matrix_of_messages_and_exchanges(ask: Ask, call: Call) -> None:
    rows = [
        call(0, 0, 10, type="send", peer=1, in_bytes=100),
        call(1, 0, 10, type="recv", peer=0, out_bytes=100),
        call(1, 20, 30, type="recv", peer=2, out_bytes=7),  # rank 2 is unrecorded
        call(0, 40, 50, type="all_to_all", in_bytes=40, out_bytes=40, **PAIR),
        call(1, 40, 50, type="all_to_all", in_bytes=40, out_bytes=40, **PAIR),
    ]
    rows[3] |= {"in_split": "[3,7]", "dtype": "Float", "out_bytes": 44}
    ranks = [{"rank": r, "host": h} for r, h in ((0, "a"), (1, "a"), (2, "b"))]
    found = ask(comm_matrix, {"collectives": rows, "ranks": ranks}).to_pylist()
    sent = {(r["from_rank"], r["to_rank"]): (r["transfers"], r["sent_bytes"]) for r in found}
    assert sent == {(0, 1): (2, 128), (1, 0): (1, 20), (2, 1): (1, 7)}
    nodes = ask(comm_matrix, {"collectives": rows, "ranks": ranks}, per="node").to_pylist()
    assert [(r["from_node"], r["to_node"], r["sent_bytes"]) for r in nodes] == [
        ("a", "a", 148),
        ("b", "a", 7),
    ]


def test_an_uneven_exchange_without_splits_is_left_out(ask: Ask, call: Call) -> None:
    rows = [call(0, 0, 10, type="all_to_all", in_bytes=40, out_bytes=60, **PAIR)]
    found = ask(comm_matrix, {"collectives": rows})
    assert found.num_rows == 0 and coverage_of(found)["calls_left_out"] == 1


def test_balance(ask: Ask, call: Call) -> None:
    rows = [
        call(0, 0, 10, type="all_to_all", in_bytes=300, out_bytes=100, in_split="[1,2]"),
        call(1, 0, 10, type="all_to_all", in_bytes=100, out_bytes=300),
    ]
    (found,) = ask(alltoall_balance, {"collectives": [r | PAIR for r in rows]}).to_pylist()
    assert (found["send_imbalance"], found["heaviest_sender"]) == (1.5, 0)
    assert (found["receive_imbalance"], found["heaviest_receiver"]) == (1.5, 1)
    assert found["peer_imbalance"] == pytest.approx(4 / 3)


# Models


def curve(latency_us: float, gbps: float, sizes: list[int]) -> list[Row]:
    """Points of an all-reduce of 8 ranks: bus factor 7/4."""
    return [
        {
            "source": "nccl_tests",
            "type": "all_reduce",
            "group_size": 8,
            "nodes": 1,
            "size_bytes": size,
            "time_us": latency_us + size * 1.75 / gbps / 1e3,
            "in_place": False,
        }
        for size in sizes
    ]


def test_latency_and_bandwidth_are_found_again(ask: Ask) -> None:
    points = curve(22.0, 360.0, [8 << (2 * k) for k in range(14)])
    (found,) = ask(comm_model, {"bench_points": points}).to_pylist()
    assert found["latency_us"] == pytest.approx(22.0)
    assert found["bandwidth_gbps"] == pytest.approx(360.0)
    assert found["half_bandwidth_bytes"] == round(22e-6 * 360e9 / 1.75)
    assert found["residual_pct"] == pytest.approx(0, abs=1e-6)


def test_a_change_of_protocol_is_another_piece(ask: Ask) -> None:
    small = curve(10.0, 20.0, [1 << k for k in range(8, 18)])
    large = curve(30.0, 300.0, [1 << k for k in range(18, 28)])
    first, second = ask(comm_model, {"bench_points": small + large}).to_pylist()
    assert (first["latency_us"], second["latency_us"]) == pytest.approx((10, 30), rel=1e-3)
    assert (first["bandwidth_gbps"], second["bandwidth_gbps"]) == pytest.approx((20, 300), rel=1e-3)
    assert second["from_bytes"] == 1 << 18


def test_the_traces_own_transfers(ask: Ask, call: Call) -> None:
    """5 us and 100 GB/s, on top of waiting of up to 3 us."""
    rows = []
    for k, size in enumerate([10_000, 100_000, 1_000_000]):
        end = 1_000_000 * (k + 1)
        start = end - 5_000 - size // 100
        rows += [call(r, start - 1_000 * k * r, end, in_bytes=size, **PAIR) for r in (0, 1)]
    (found,) = ask(comm_model, {"collectives": rows}).to_pylist()
    assert (found["basis"], found["points"]) == ("matched", 3)
    assert found["latency_us"] == pytest.approx(5.0)
    assert found["bandwidth_gbps"] == pytest.approx(100.0)
    study = ask(bucket_study, {"collectives": rows}).to_pylist()
    assert [r["size_from_bytes"] for r in study] == [8192, 65536, 524288]
    assert study[0]["half_bandwidth_bytes"] == 500_000
    assert [r["below_half"] for r in study] == [True, True, False]
    assert study[2]["busbw_gbps_p50"] == pytest.approx(1_000_000 / 15_000)


def test_what_needs_sizes_says_that_none_were_recorded(ask: Ask, call: Call) -> None:
    types = ("all_reduce", "send", "all_to_all")
    rows = [call(r, k * 10, k * 10 + 5, type=types[k], **PAIR) for k in range(3) for r in (0, 1)]
    for question in (comm_model, bucket_study, comm_excess):
        with pytest.raises(MissingTable, match=r"no sizes.*6 collective calls without a size"):
            ask(question, {"collectives": rows})
    with pytest.raises(MissingTable, match=r"no sizes.*4 collective calls without a size"):
        ask(comm_matrix, {"collectives": rows})
    assert ask(comm_matrix, {"collectives": rows[:2]}).num_rows == 0  # no message was sent at all
    rows[0]["in_bytes"] = 4096
    for question in (comm_model, bucket_study, comm_excess):
        answer = ask(question, {"collectives": rows})
        assert coverage_of(answer)["calls_without_size"] == 5


def test_every_sum_counts_the_calls_without_a_size(ask: Ask, call: Call) -> None:
    """A barrier has none to lack."""
    rows = [
        call(r, k * 10, k * 10 + 5, type="all_to_all", **PAIR) for k in range(3) for r in (0, 1)
    ]
    rows += [call(r, 40, 45, type="barrier", **PAIR) for r in (0, 1)]
    for row in rows[1:6]:
        row |= {"in_bytes": 4096, "out_bytes": 4096}
    for question in (comm_summary, collective_times, alltoall_balance):
        answer = ask(question, {"collectives": rows})
        assert coverage_of(answer)["calls_without_size"] == 1


def test_benchmarks_are_fitted_beside_calls_without_size(ask: Ask, call: Call) -> None:
    points = curve(22.0, 360.0, [8 << (2 * k) for k in range(14)])
    unsized = [call(r, 0, 10, **PAIR) for r in (0, 1)]
    answer = ask(comm_model, {"bench_points": points, "collectives": unsized})
    assert answer.num_rows == 1 and coverage_of(answer)["calls_without_size"] == 2
    assert ask(comm_model, {"bench_points": points}).num_rows == 1
    with pytest.raises(MissingTable, match="no benchmarks to fit"):
        ask(comm_model, {"collectives": unsized}, basis="benchmark")


# Other sources


def record(source: str, rank: int, seq: int, size: int, **more: Any) -> Row:
    return {
        "source": source,
        "cycle": 0,
        "comm_hash": 7,
        "comm_rank": rank,
        "group_size": 2,
        "seq": seq,
        "seq_kind": "function",
        "type": "all_reduce",
        "in_bytes": size,
        "timing": "none",
    } | more


def test_facts_by_time(ask: Ask, call: Call) -> None:
    """The plugin saw calls 5 to 8, the profiler 6 and 7, ten microseconds apart."""
    spot = {5: 0, 6: 10_000, 7: 20_000, 8: 30_000}
    ours = [call(1, spot[k], spot[k] + 900, in_bytes=64, **PAIR) for k in (6, 7)]
    theirs = [
        record("profiler_plugin", 1, k, 64, start_ns=t, end_ns=t + 890, timing="gpu")
        | {"algorithm": "RING" if k < 7 else "TREE", "protocol": "LL", "channels": 2}
        for k, t in spot.items()
    ]
    channels = [
        {"source": "profiler_plugin", "comm_hash": 7, "comm_rank": 1, "type": "all_reduce"}
        | {"seq": 6, "channel": c, "start_ns": 0, "end_ns": length}
        for c, length in ((0, 500), (1, 800))
    ]
    found = ask(comm_sources, {"collectives": [*ours, *theirs], "comm_channels": channels})
    assert found["seq"].to_pylist() == [6, 7]
    assert found["algorithm"].to_pylist() == ["RING", "TREE"]
    assert found["joined_by"].to_pylist() == ["time", "time"]
    assert found["channel_ns_max"].to_pylist() == [800, None]
    assert coverage_of(found)["joined_pct"] == 100.0


def test_facts_by_order_where_one_order_fits(ask: Ask, call: Call) -> None:
    ours = [call(0, 100 * k, 100 * k + 9, in_bytes=size, **PAIR) for k, size in enumerate((4, 8))]
    theirs = [record("inspector", 0, k, size, duration_ns=k) for k, size in enumerate((2, 4, 8))]
    found = ask(comm_sources, {"collectives": [*ours, *theirs]})
    assert found["seq"].to_pylist() == [1, 2]
    assert set(found["joined_by"].to_pylist()) == {"order"}


def test_facts_by_type_and_size_where_the_order_is_open(ask: Ask, call: Call) -> None:
    """Three equal calls against two: which is which is open, but all are RING."""
    ours = [call(r, 100 * k, 100 * k + 9, in_bytes=4, **PAIR) for r in (0, 1) for k in (0, 1)]
    theirs = [record("nccl_debug", 0, k, 4, seq_kind="plan", algorithm="RING") for k in range(3)]
    found = ask(comm_sources, {"collectives": [*ours, *theirs]})
    assert found["algorithm"].to_pylist() == ["RING"] * 4
    assert set(found["joined_by"].to_pylist()) == {"type and size"}
    assert found["seq"].to_pylist() == [None] * 4
    times = ask(collective_times, {"collectives": [*ours, *theirs]}, source="kineto")
    assert times["algorithm"].to_pylist() == ["RING"] * 4


def test_another_groups_communicator_is_not_taken(ask: Ask, call: Call) -> None:
    ours = [call(0, 0, 9, in_bytes=4, **PAIR)]
    other = [record("nccl_debug", 0, 0, 999, algorithm="RING")]
    wide = [record("nccl_debug", 0, 0, 4, algorithm="TREE", group_size=4, comm_hash=8)]
    assert ask(comm_sources, {"collectives": [*ours, *other, *wide]}).num_rows == 0


def test_without_other_records_it_says_what_to_put_beside(ask: Ask, call: Call) -> None:
    with pytest.raises(MissingTable, match="NCCL_DEBUG"):
        ask(comm_sources, {"collectives": [call(0, 0, 9, in_bytes=4, **PAIR)]})


def test_progress(ask: Ask) -> None:
    rows = [
        {"source": "ras", "comm_hash": 10, "comm_rank": r, "type": "all_reduce", "count": n}
        for r, n in ((0, 50), (1, 50), (2, 49))
    ]
    rows.append({"source": "ras", "comm_hash": 10, "comm_rank": 3, "status": "unresponsive"})
    silent, reduced = ask(comm_progress, {"comm_counts": rows}).to_pylist()
    assert (silent["lagging_ranks"], silent["status"]) == ("3", "unresponsive")
    assert (reduced["lag"], reduced["lagging_ranks"]) == (1, "2")
    assert reduced["communicator"] == "0xa"


def test_a_call_that_two_sources_saw_counts_once(ask: Ask, call: Call) -> None:
    ours = [call(r, 0, 100, in_bytes=4, **PAIR) for r in (0, 1)]
    theirs = [
        record("inspector", r, 0, 4, start_ns=9_000, end_ns=9_500, timing="cpu") for r in (0, 1)
    ]
    (found,) = ask(comm_summary, {"collectives": [*ours, *theirs]}).to_pylist()
    assert (found["count"], found["comm_ns"]) == (2, 200)
    assert ask(comm_summary, {"collectives": theirs}).to_pylist()[0]["comm_ns"] == 1000


def test_the_limit_of_a_group_over_nodes_is_its_share_of_the_adapters(ask: Ask, call: Call) -> None:
    """Two nodes of two GPUs with 40 GB/s each; one member on each node: 20 GB/s."""
    across = {"group_ranks": "[0,2]", "group_size": 2}
    rows = [call(r, 0, 100, in_bytes=1000, **across) for r in (0, 2)]
    ranks = [{"rank": r, "host": "ab"[r // 2], "device_name": "NVIDIA H200"} for r in range(4)]
    tables = {"collectives": rows, "ranks": ranks}
    assert ask(comm_summary, tables)["link_pct_p50"].to_pylist() == [None]
    assert ask(comm_summary, tables, inter_gbps=40.0)["link_pct_p50"].to_pylist() == [50.0]
    assert ask(comm_summary, tables, intra_gbps=100.0)["link_pct_p50"].to_pylist() == [10.0]


def test_a_kernel_of_an_unknown_gpu_has_a_part_of_the_time(ask: Ask, call: Call) -> None:
    """The first ran on a stream of a GPU that was not recorded; the second on the host, as gloo's
    do."""
    rows = [
        call(0, 100, 150, device=None, stream=7, group="a"),
        call(0, 200, 230, device=None, group="b"),
    ]
    answer = ask(comm_overlap_by_group, {"collectives": rows}).to_pylist()
    assert {row["group"]: row["shared_ns"] for row in answer} == {"a": 50, "b": 0}
