"""Layouts composed of all kinds of parallelism: bytes by hand, and the calls that htk finds."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.job import simulate_job
from tests.htk.recording.simulate.simulated_trace import written
from tests.thinned import thinned

SMALL = Config(
    model="own", layers=2, hidden=256, heads=4, kv_heads=4, ffn=512, vocab=1000, seq=128, steps=2,
    nodes=2, gpus_per_node=4, strategy="ddp", stacks=False, sync_records=False,
)  # fmt: skip
EXPERTS: dict[str, Any] = {"experts": 8, "active_experts": 2, "expert_skew": 0.5}
LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor_sequence": {"tensor_parallel": 4, "sequence_parallel": True},
    "ring": {"context_parallel": 2, "context_exchange": "messages"},
    "permuted": {"context_parallel": 4, "strategy": "full_shard"},
    "experts": EXPERTS | {"expert_parallel": 4, "split_groups": True},
    "all": EXPERTS | {
        "tensor_parallel": 2, "sequence_parallel": True, "pipeline_parallel": 2,
        "accumulation": 3, "context_parallel": 2, "context_exchange": "messages",
        "expert_parallel": 2, "split_groups": True,
    },
}  # fmt: skip
Call = tuple[Any, ...]


@pytest.mark.parametrize("layout", thinned(LAYOUTS.values()), ids=LAYOUTS)
def test_every_call_is_the_true_one(layout: dict[str, Any], tmp_path: Path) -> None:
    trace, truth = written(replace(SMALL, **layout), tmp_path)
    true: list[Call] = [
        (rank, str(call["group_ranks"]), call["type"], call["start_ns"][k], call["wait_ns"][k],
         call["transfer_ns"][k])
        for call in truth["collectives"]
        for k, rank in enumerate(call["ranks"])
    ]  # fmt: skip
    true += [
        (call["rank"], str(call["group_ranks"]), "send_recv" if call["batched"] else
         call["messages"][0]["type"], call["start_ns"], call["wait_ns"], call["transfer_ns"])
        for call in truth["exchanges"]
    ]  # fmt: skip
    begin = {rank["rank"]: rank["clock_offset_ns"] for rank in truth["ranks"]}
    assert not any(begin.values())
    rows = trace.tables["collectives"].to_pylist()
    times = trace.collective_times().to_pylist()
    first = min(row["start_ns"] for row in rows)
    found = [
        (row["rank"], str(json.loads(row["group_ranks"])), row["type"],
         row["start_ns"], row["wait_ns"], row["transfer_ns"])
        for row in times
    ]  # fmt: skip
    base = min(call[3] for call in found) - min(call[3] for call in true)
    assert first - base > 0
    assert sorted(found) == sorted((*call[:3], call[3] + base, *call[4:]) for call in true)


def test_uneven_splits_add_up(tmp_path: Path) -> None:
    """What a rank sends to another one is what that one receives; all tokens are sent."""
    config = replace(SMALL, **EXPERTS, expert_parallel=4, tensor_parallel=2)
    trace, truth = written(config, tmp_path)
    routed = 128 * 2
    calls: dict[tuple[str, int], dict[int, tuple[list[int], list[int]]]] = {}
    for row in trace.tables["collectives"].to_pylist():
        if row["type"] == "all_to_all":
            sent, received = json.loads(row["in_split"]), json.loads(row["out_split"])
            assert row["in_bytes"] == 2 * 256 * sum(sent)
            assert row["out_bytes"] == 2 * 256 * sum(received)
            calls.setdefault((row["group_ranks"], row["seq"]), {})[row["rank"]] = sent, received
    away: dict[tuple[str, int], dict[int, int]] = {}
    for key, ends in calls.items():
        members = json.loads(key[0])
        assert sorted(ends) == members
        assert sum(sum(sent) for sent, _ in ends.values()) == routed * len(members)
        for own, rank in enumerate(members):
            assert ends[rank][1] == [ends[other][0][own] for other in members]
            away[key] = away.get(key, {}) | {rank: 512 * (sum(ends[rank][0]) - ends[rank][0][own])}
    told = {
        (str(call["group_ranks"]).replace(" ", ""), call["seq"]): dict(
            zip(call["ranks"], call["sent_bytes"], strict=True)
        )
        for call in truth["collectives"]
        if call["type"] == "all_to_all"
    }
    assert {(key[0].replace(" ", ""), key[1]): sent for key, sent in away.items()} == told
    assert len({tuple(sent.values()) for sent in told.values()}) >= 4


def test_sequence_parallel_ranks_send_as_much_as_all_reduces(tmp_path: Path) -> None:
    """An all-reduce is a reduce-scatter and an all-gather; the head's input is gathered besides."""
    sent = []
    for sequence_parallel in (False, True):
        config = replace(SMALL, tensor_parallel=4, sequence_parallel=sequence_parallel, steps=1)
        simulate_job(check_config(config), tmp_path / str(sequence_parallel))
        truth = json.loads((tmp_path / str(sequence_parallel) / "truth.json").read_text())
        calls = [c for c in truth["collectives"] if c["group_ranks"] == [0, 1, 2, 3]]
        sent.append({kind: sum(c["wire_bytes"] for c in calls if c["type"] == kind)
                     for kind in ("all_reduce", "all_gather", "reduce_scatter")})  # fmt: skip
    buffer = 2 * 128 * 256 * 3 // 4
    assert sent[0] == {"all_reduce": 2 * 8 * buffer, "all_gather": 0, "reduce_scatter": 0}
    assert sent[1] == {"all_reduce": 0, "all_gather": 9 * buffer, "reduce_scatter": 9 * buffer}


def test_keys_and_values_go_round_as_messages(tmp_path: Path) -> None:
    """Three of four parts come from others; backward their gradients go with them."""
    config = replace(SMALL, context_parallel=4, context_exchange="messages", steps=1)
    simulate_job(check_config(config), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    calls = [call for call in truth["exchanges"] if call["rank"] == 3]
    part = 2 * 2 * (128 // 4) * 256
    assert sorted(call["messages"][0]["bytes"] for call in calls) == sorted([part, 2 * part] * 6)
    for call in calls:
        ends = [(m["type"], m["from"], m["to"]) for m in call["messages"]]
        assert ends == [("send", 3, 0), ("recv", 2, 3)]
        assert call["group_ranks"] == [0, 1, 2, 3]


def test_servers_side_by_side_are_jobs_of_their_own(tmp_path: Path) -> None:
    config = replace(SMALL, nodes=1, gpus_per_node=8, tensor_parallel=4, decode_requests=8,
                     custom_all_reduce=True)  # fmt: skip
    files = simulate_job(check_config(config), tmp_path)[:-1]
    assert {f.name for f in files} == {
        f"replica{replica}_rank{rank}.pt.trace.json.gz" for replica in (0, 1) for rank in range(4)
    }
    heads = [json.loads(gzip.decompress(file.read_bytes())) for file in files]
    facts = [head["distributedInfo"] for head in heads]
    assert [(f["rank"], f["world_size"]) for f in facts] == [(r, 4) for r in range(4)] * 2
    assert len({head["trace_id"] for head in heads}) == 2
    kernels = [e for e in heads[5]["traceEvents"] if "cross_device_reduce_1stage" in e["name"]]
    assert kernels and all("__nv_bfloat16, 4>" in e["name"] for e in kernels)
    assert not any("Collective name" in e.get("args", {}) for e in heads[5]["traceEvents"])
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert {tuple(c["group_ranks"]) for c in truth["collectives"]} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert [(r["replica"], r["recorded_rank"]) for r in truth["ranks"]][5] == (1, 1)


def test_groups_of_a_split_have_one_name() -> None:
    config = replace(SMALL, tensor_parallel=2, split_groups=True)
    names = {kind: set(group.names) for kind, group in process_groups(config).items()}
    assert all(len(own) == 1 for own in names.values())
    assert names["tensor"] != names["data"]
    assert len(set(process_groups(replace(config, split_groups=False))["tensor"].names)) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sequence_parallel": True}, "goes with tensor_parallel"),
        ({"context_exchange": "pigeons"}, "there are all_to_all, messages"),
        ({"context_parallel": 3}, "must divide .*: take 2 or 4"),
        ({"experts": 6, "expert_parallel": 4}, "experts .6.: take 2"),
        ({"custom_all_reduce": True}, "goes with decode_requests"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_config(replace(SMALL, **change))
