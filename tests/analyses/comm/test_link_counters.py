"""Counters beside collectives whose bytes are known."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.analyses.comm.link_counters import link_counters
from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.base.errors import MissingTable
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.doctor import check_recording

SAMPLE = Path(htk.__file__).parent / "traces/sample"
S = 10**9
T = 1_785_000_000 * S
Row = dict[str, Any]


def samples(link: str, port: str, host: str, counts: list[int], **more: Any) -> list[Row]:
    return [
        {"host": host, "port": port, "link": link, "direction": "sent", "metric": link,
         "time_ns": T + k * S, "total_bytes": n} | more
        for k, n in enumerate(counts)
    ]  # fmt: skip


@pytest.fixture
def job(call: Callable[..., Row]) -> dict[str, list[Row]]:
    """Two hosts of two ranks; 0.5 s into the recording a ring all-reduce of 8 GB takes a second:
    each rank sends 12 GB, of 4 hops 2 lie between the hosts."""
    ring = {"group_ranks": "[0,1,2,3]", "group_size": 4, "in_bytes": 8 * S, "device": 0}
    rows = [call(r, T + S // 2, T + 3 * S // 2, **ring) for r in range(4)]
    ranks = [{"rank": r, "host": f"Node-{'ab'[r // 2]}.cluster"} for r in range(4)]
    window = [
        {"rank": r, "cycle": 0, "device": 0, "start_ns": T, "end_ns": T + 2 * S} for r in range(4)
    ]
    return {"collectives": rows, "ranks": ranks, "rank_windows": window}


def test_adapters_of_a_host_are_added_up(ask: Any, job: dict[str, list[Row]]) -> None:
    """Each host sends 2 ranks x 6 GB to the other, half of it in each second."""
    links = [
        *samples("infiniband", "mlx5_0/1", "node-a", [0, 4 * S, 8 * S, 9 * S]),
        *samples("infiniband", "mlx5_1/1", "node-a", [0, 2 * S, 4 * S, 5 * S]),
        *samples("ethernet", "eth0", "node-a", [0, 100, 200, 300]),
    ]
    table = ask(link_counters, {**job, "link_samples": links})
    rows = [r for r in table.to_pylist() if r["link"] == "infiniband"]
    assert [r["ports"] for r in rows] == [2, 2]  # the third second was not recorded
    assert [r["counted_bytes"] for r in rows] == [6 * S, 6 * S]
    assert [r["collective_bytes"] for r in rows] == [6 * S, 6 * S]
    assert [r["collectives_pct"] for r in rows] == [100.0, 100.0]
    assert [r["recorded_pct"] for r in rows] == [100.0, 100.0]
    assert rows[0]["counted_gbps"] == rows[0]["collective_gbps"] == 6.0
    ethernet = [r for r in table.to_pylist() if r["link"] == "ethernet"]
    assert [r["collective_bytes"] for r in ethernet] == [None, None]


def test_a_gpu_is_that_of_the_rank_in_its_place(ask: Any, job: dict[str, list[Row]]) -> None:
    """Each rank sends 6 GB to its neighbour on the host; the counters of rank 3 saw 3 of them."""
    links = []
    for gpu, rate in ((0, 3 * S), (1, 3 * S // 2)):
        rates = samples("nvlink", f"nvidia{gpu}", "node-b", [0, 0, 0], device=gpu)
        links += [r | {"total_bytes": None, "bytes_per_s": float(rate)} for r in rates]
    rows = ask(link_counters, {**job, "link_samples": links}, by="port").to_pylist()
    assert [(r["rank"], r["port"]) for r in rows] == [(2, "nvidia0"), (3, "nvidia1")] * 2
    assert [r["collective_bytes"] for r in rows] == [3 * S] * 4
    assert [r["collectives_pct"] for r in rows] == [100.0, 200.0] * 2


def test_what_is_not_known_is_null_and_not_nothing(ask: Any, job: dict[str, list[Row]]) -> None:
    links = [
        *samples("infiniband", "x", "elsewhere", [0, S]),
        *samples("pcie", "nvidia0", "node-a", [0, S], device=0),
        *samples("infiniband", "y", "node-a", [0, S], direction="received"),
        *samples("infiniband", "z", "node-a", [0, S])[:1],
    ]
    links += [{**links[0], "time_ns": None}]
    table = ask(link_counters, {**job, "link_samples": links})
    assert {r["collective_bytes"] for r in table.to_pylist()} == {None}
    assert coverage_of(table)["samples_without_time"] == 1
    with pytest.raises(MissingTable, match="no counters of links"):
        ask(link_counters, job)


def test_intervals_that_lack_a_port_are_not_added_up(ask: Any, job: dict[str, list[Row]]) -> None:
    links = [
        *samples("infiniband", "p", "node-a", [0, S, 2 * S]),
        *samples("infiniband", "q", "node-a", [0, S]),
    ]
    table = ask(link_counters, {**job, "link_samples": links})
    assert [r["counted_bytes"] for r in table.to_pylist()] == [2 * S]
    assert coverage_of(table)["intervals_of_unequal_ports"] == 1


def test_a_file_of_counters_beside_traces(tmp_path: Path) -> None:
    """The shipped sample of two ranks, and an adapter that carried 3 GB/s all the while."""
    for name in ("rank0", "rank1"):
        shutil.copy(SAMPLE / f"{name}.pt.trace.json.gz", tmp_path)
    plain = open_trace(tmp_path, OpenOptions(cache=False))
    begin = min(plain.tables["rank_windows"]["start_ns"].to_pylist()) // 10**6 - 1000
    (tmp_path / "node.prom").write_text(
        "".join(
            'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1",'
            f'instance="a:9100"}} {3 * S * k} {begin + 1000 * k}\n'
            for k in range(4)
        )
    )
    both = open_trace(tmp_path, OpenOptions(cache=False))
    rows = ask_trace(both, "link_counters").to_pylist()
    assert {r["counted_gbps"] for r in rows} == {3.0}
    assert 0 < len(rows) < 3  # those that the recording overlaps
    (starts,) = [r for r in check_recording(both).to_pylist() if r["item"] == "first events"]
    assert starts["state"] == "ok"
