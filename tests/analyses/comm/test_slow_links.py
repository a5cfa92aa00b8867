"""Slow links of simulated jobs are found, and nothing is where there is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.thinned import thinned

JOB = {"model": "gpt3-126m", "layers": 2, "seq": 512, "micro_batch": 2, "steps": 2, "stacks": False}
TWO = {"nodes": 2, "gpus_per_node": 4, "strategy": "full_shard"}
FOUR = {"nodes": 4, "gpus_per_node": 2, "strategy": "hybrid_shard"}
RAILS = {"nodes": 2, "gpus_per_node": 4, "strategy": "hybrid_shard"}


def answer(folder: Path, job: dict[str, Any], **options: Any) -> tuple[list[dict[str, Any]], str]:
    simulate_job(check_config(Config(**(JOB | job))), folder)
    table = ask_trace(open_trace(folder, OpenOptions(cache=False)), "slow_links", **options)
    return table.to_pylist(), coverage_of(table)["verdict"]


@pytest.mark.parametrize("seed", thinned(range(10), 5))
@pytest.mark.parametrize("nodes", [TWO, FOUR], ids=["1 of 2", "1 of 4"])
def test_a_slow_node_slows_the_network_and_which_node_cannot_be_told(
    nodes: dict[str, Any], seed: int, tmp_path: Path
) -> None:
    """All groups that leave a node visit all nodes: the verdict names the network and the test."""
    rows, verdict = answer(tmp_path, nodes | {"seed": seed, "plants": ("slow_link",)})
    first = rows[0]
    assert first["suspect"].startswith(f"network between {nodes['nodes']} nodes")
    assert first["probability"] > 0.6
    assert 1.9 < first["slowdown"] < 2.9
    parts = json.loads(first["may_be"])
    adapters = [parts[f"network adapters of node-{k}"] for k in range(nodes["nodes"])]
    assert max(adapters) == pytest.approx(min(adapters))
    assert sum(parts.values()) == pytest.approx(first["probability"], abs=0.01)
    assert "cannot be told" in verdict
    assert "each pair of nodes" in first["test"]


@pytest.mark.parametrize("seed", thinned(range(10), 5))
def test_a_slow_adapter_is_told_from_those_of_other_gpus(seed: int, tmp_path: Path) -> None:
    plants = ("slow_link:node=1,nic=2",)
    rows, _ = answer(tmp_path, RAILS | {"seed": seed, "plants": plants})
    first = rows[0]
    assert set(json.loads(first["may_be"])) == {
        "network adapter of rank 2 on node-0",
        "network adapter of rank 6 on node-1",
    }
    assert first["probability"] > 0.99
    assert first["slowdown"] == pytest.approx(2.5, rel=0.1)
    assert first["compared_with"] == "like groups"
    assert json.loads(first["slow_ranks"]) == [2, 6]
    assert first["group_count"] == 1
    assert first["busbw_gbps"] * first["slowdown"] == pytest.approx(first["expected_gbps"], rel=0.1)


@pytest.mark.parametrize("plants", [(), ("straggler:rank=3,factor=1.5",)], ids=["calm", "late"])
@pytest.mark.parametrize("nodes", [TWO, FOUR, RAILS], ids=["2", "4", "rails"])
def test_nothing_is_slow_where_ranks_only_wait(
    nodes: dict[str, Any], plants: tuple[str, ...], tmp_path: Path
) -> None:
    rows, verdict = answer(tmp_path, nodes | {"seed": 4, "plants": plants})
    assert rows == []
    assert verdict.startswith("no slow link")


@pytest.mark.parametrize("seed", thinned(range(10, 20), 5))
def test_no_straggler_is_named_for_a_slow_adapter(seed: int, tmp_path: Path) -> None:
    """Ranks 2 and 6 come late to their other groups for it, in seed 14 after a late start too."""
    plants = ("slow_link:node=1,nic=2",)
    simulate_job(check_config(Config(**(JOB | RAILS | {"seed": seed, "plants": plants}))), tmp_path)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    findings = ask_trace(trace, "recommendations").to_pylist()
    (link,) = [f["evidence"] for f in findings if f["finding"] == "a link is slow"]
    assert link.startswith("network adapter of rank 2 on node-0, or network adapter of rank 6")
    waits = [f["evidence"] for f in findings if f["finding"].startswith("ranks wait for")]
    assert not [words for words in waits if "for rank 2" in words or "for rank 6" in words]


def rails_log(adapters: dict[int, str]) -> str:
    """NCCL's log of the four pairs of ranks that join two nodes, with the adapter of each rank."""
    lines = []
    for pair in range(4):
        for own, rank in enumerate((pair, pair + 4)):
            head = f"node-{own}:{100 + rank}:9 [{pair}] NCCL INFO "
            init = (
                f"comm 0x{rank}a rank {own} nranks 2 cudaDev {pair} busId 1 commId 0xabc{pair} - "
            )
            lines += [
                head + init + "Init START",
                f"{head}Ring 00 : {1 - own} -> {own} -> {1 - own}",
            ]
            for sender, receiver, way in ((own, 1 - own, "send"), (1 - own, own, "receive")):
                via = f"NET/IB/{adapters[rank]}/GDRDMA"
                lines.append(f"{head}Channel 00/0 : {sender}[0] -> {receiver}[0] [{way}] via {via}")
            lines.append(head + init + "Init COMPLETE")
    return "\n".join(lines) + "\n"


def test_recommendations_read_rings_and_adapters_from_nccls_log(tmp_path: Path) -> None:
    """Ranks 1 and 2 of node 0 share an adapter, so that it is not what slows rank 2 and 6 alone."""
    plants = ("slow_link:node=1,nic=2",)
    simulate_job(check_config(Config(**(JOB | RAILS | {"seed": 3, "plants": plants}))), tmp_path)
    adapters = {0: "0", 1: "1", 2: "1", 3: "3", 4: "0", 5: "1", 6: "2", 7: "3"}
    (tmp_path / "nccl.log").write_text(rails_log(adapters))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    findings = ask_trace(trace, "recommendations").to_pylist()
    (link,) = [f["evidence"] for f in findings if f["finding"] == "a link is slow"]
    (first, *_) = ask_trace(trace, "slow_links").to_pylist()
    assert first["suspect"].startswith("network adapter IB/2 of rank 6 on node-1")
    assert link.startswith(f"{first['suspect']}: transfers among ranks 2, 6 ")
    assert link.endswith("; by the rings and trees of NCCL's log")
    assert "IB/1" not in link


def test_the_rate_of_the_adapters_decides_where_all_groups_are_alike(tmp_path: Path) -> None:
    """A network that was bought slow is not slow."""
    simulate_job(
        check_config(Config(**(JOB | TWO | {"seed": 3, "plants": ("slow_link",)}))), tmp_path
    )
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    bought = ask_trace(trace, "slow_links", inter_gbps=40.0)
    assert bought.to_pylist() == []
    (first, *_) = ask_trace(trace, "slow_links", inter_gbps=100.0).to_pylist()
    assert first["probability"] > 0.8
    assert first["compared_with"] == "given"
    assert first["expected_gbps"] == pytest.approx(75.0)


def test_hosts_are_inferred_from_device_numbers_and_it_is_said(tmp_path: Path) -> None:
    job = RAILS | {"seed": 3, "plants": ("slow_link:node=1,nic=2",), "host_names": False}
    simulate_job(check_config(Config(**(JOB | job))), tmp_path)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    table = ask_trace(trace, "slow_links")
    (first, *_) = table.to_pylist()
    assert "network adapter of rank 6 on node 1" in json.loads(first["may_be"])
    assert coverage_of(table)["hosts"] == "inferred from device numbers: 4 ranks a node"
    summary = ask_trace(trace, "comm_summary", by="group")
    scopes = {r["group_size"]: r["scope"] for r in summary.to_pylist()}
    assert scopes == {4: "node", 2: "across nodes"}
    assert coverage_of(summary)["hosts"] == "inferred from device numbers: 4 ranks a node"


def test_ranks_behind_a_slow_link_are_no_stragglers(tmp_path: Path) -> None:
    """They come late to their other groups for it: what that costs is laid at nobody's door."""
    costs = {}
    for name, plants in (("calm", ()), ("slow", ("slow_link:node=1,nic=1,factor=4",))):
        job = RAILS | {"seed": 3, "plants": plants}
        simulate_job(check_config(Config(**(JOB | job))), tmp_path / name)
        trace = open_trace(tmp_path / name, OpenOptions(cache=False))
        table = ask_trace(trace, "stragglers")
        rows = table.to_pylist()
        assert {row["late_in"] for row in rows} & {"communication"} == set()
        held_up = {row["rank"]: row["held_up_ns"] for row in rows}
        costs[name] = max(row["cost_to_others_ns"] for row in rows)
    assert sorted(held_up, key=lambda rank: -held_up[rank])[:2] in ([1, 5], [5, 1])
    nobody = coverage_of(table)["wait_blamed_on_nobody_ns"]
    assert nobody > 3 * costs["slow"]
    assert costs["slow"] < 2.5 * costs["calm"]
