"""Experts spread over ranks, and sequences that ranks share: who sends what to whom."""

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
from htk.traces.trace.opening import OpenOptions, open_trace

LAYERS, HIDDEN, FFN, EXPERTS, ACTIVE, TOKENS = 2, 256, 512, 8, 2, 2 * 128
MIXTURE = Config(
    model="own", layers=LAYERS, hidden=HIDDEN, heads=4, kv_heads=2, ffn=FFN, vocab=1000,
    nodes=2, gpus_per_node=2, micro_batch=2, seq=128, steps=2, strategy="ddp", noise=0.0,
    contention=False, jitter_ns=0, experts=EXPERTS, active_experts=ACTIVE, expert_parallel=4,
)  # fmt: skip


def collectives(config: Config, folder: Path) -> list[dict[str, Any]]:
    """Those of one step, as a recording of all ranks tells them."""
    simulate_job(check_config(config), folder)
    tables = open_trace(folder, OpenOptions(cache=False)).tables
    rows: list[dict[str, Any]] = tables["collectives"].to_pylist()
    return rows


def sent(rows: list[dict[str, Any]], kind: str) -> list[tuple[int, int, int]]:
    return [(r["rank"], r["in_bytes"], r["out_bytes"]) for r in rows if r["type"] == kind]


def test_tokens_go_to_experts_and_back_in_both_passes(tmp_path: Path) -> None:
    rows = sent(collectives(MIXTURE, tmp_path), "all_to_all")
    size = 2 * TOKENS * ACTIVE * HIDDEN
    assert len(rows) == 4 * LAYERS * 4 * 2  # ranks, steps
    assert all(row[1:] == (size, size) for row in rows)


def test_experts_that_are_liked_get_more(tmp_path: Path) -> None:
    """Each rank sends as much as all; what it receives differs, and is the same in all."""
    rows = sent(collectives(replace(MIXTURE, expert_skew=0.5), tmp_path), "all_to_all")
    size = 2 * TOKENS * ACTIVE * HIDDEN
    first = [row for row in rows if row[0] == 0]
    there, back = first[0], first[1]
    assert there[1] == size and there[2] != size
    assert back[1] == there[2] and back[2] == size
    received = [next(r[2] for r in rows if r[0] == rank) for rank in range(4)]
    assert sum(received) == pytest.approx(4 * size, abs=4)
    assert len(set(received)) == 4 and max(received) > 1.05 * size


def test_a_step_takes_as_long_as_its_fullest_experts(tmp_path: Path) -> None:
    """Products are as long as the tokens of their rank are many."""
    simulate_job(check_config(replace(MIXTURE, expert_skew=0.5, steps=1)), tmp_path)
    lengths, received = [], []
    for rank in range(4):
        text = gzip.decompress((tmp_path / f"rank{rank}.pt.trace.json.gz").read_bytes())
        events = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "kernel"]
        lengths.append(next(e["dur"] for e in events if "GroupProblemShape" in e["name"]))
        exchange = next(e for e in events if "SendRecv" in e["name"])
        received.append(exchange["args"]["Out msg nelems"])
    assert len(set(received)) == 4
    for length, tokens in zip(lengths, received, strict=True):
        assert length / lengths[0] == pytest.approx(tokens / received[0], rel=0.02)


def test_gradients_of_experts_are_reduced_by_those_that_hold_them(tmp_path: Path) -> None:
    over_two = replace(MIXTURE, expert_parallel=2)
    rows = [r for r in collectives(over_two, tmp_path) if r["type"] == "all_reduce"]
    experts = LAYERS * EXPERTS // 2 * 3 * HIDDEN * FFN
    of_first = [r for r in rows if r["rank"] == 0 and r["group_size"] == 2]
    assert sum(r["in_bytes"] for r in of_first) == 2 * 2 * experts  # of two steps
    others = sum(r["in_bytes"] for r in rows if r["rank"] == 0 and r["group_size"] == 4) // 2
    assert others == 2 * (over_two.held_parameters - experts)
    truth = json.loads((tmp_path / "truth.json").read_text())
    wire = truth["ledger"]["all_reduce_wire"]
    assert wire == 2 * 3 / 4 * others + 2 * 1 / 2 * 2 * experts
    assert over_two.held_parameters < MIXTURE.decoder.parameters


def test_groups_of_experts_are_neighbours_and_their_copies_strides() -> None:
    groups = process_groups(replace(MIXTURE, expert_parallel=2, nodes=4))
    assert groups["expert"].members == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert groups["expert_replicate"].members == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert "expert" not in process_groups(replace(MIXTURE, expert_parallel=1))


def test_keys_and_values_go_round_a_ring(tmp_path: Path) -> None:
    """Three of four parts come from others; backward their gradients go with them."""
    ring = replace(MIXTURE, experts=None, active_experts=None, expert_parallel=1,
                   context_parallel=4)  # fmt: skip
    rows = [r for r in collectives(ring, tmp_path) if r["type"] == "all_to_all" and r["rank"] == 0]
    kv = ring.decoder.kv_width
    part = 2 * 2 * (TOKENS // 4) * kv
    sizes = sorted(r["in_bytes"] for r in rows)
    assert sizes == sorted([part, 2 * part] * (3 * LAYERS * 2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expert_parallel": 3}, "must divide"),
        ({"strategy": "full_shard"}, "goes with strategy ddp"),
        ({"expert_parallel": 1, "context_parallel": 3}, "must divide"),
        ({"expert_skew": -1.0}, "0 to 2"),
    ],
)
def test_what_does_not_come_out_even_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_config(replace(MIXTURE, **change))
