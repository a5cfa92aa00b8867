"""Groups without a name: told by their ends, or left alone; never mixed."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.quantities.derived.unnamed_groups import unnamed_groups
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.thinned import thinned

JOB: dict[str, Any] = {
    "model": "tiny", "layers": 4, "hidden": 512, "heads": 8, "ffn": 1024, "vocab": 8000,
    "nodes": 2, "gpus_per_node": 4, "strategy": "hybrid_shard", "tensor_parallel": 2,
    "seq": 512, "steps": 2, "stacks": False, "clock_offset_us": 10_000.0,
}  # fmt: skip


def true_collective(folder: Path, rows: list[dict[str, Any]]) -> list[int]:
    """The collective that each row is truly of: the k-th of its type on its rank."""
    truth = json.loads((folder / "truth.json").read_text())["collectives"]
    starts, own = defaultdict(list), defaultdict(list)
    for number, collective in enumerate(truth):
        for rank, start in zip(collective["ranks"], collective["start_ns"], strict=True):
            starts[rank, collective["type"]].append((start, number))
    for k, row in enumerate(rows):
        own[row["rank"], row["type"]].append((row["start_ns"], k))
    numbers = [0] * len(rows)
    for key, entries in own.items():
        for (_, k), (_, number) in zip(sorted(entries), sorted(starts[key]), strict=True):
            numbers[k] = number
    return numbers


@pytest.mark.parametrize("seed", thinned([7, 8]))
@pytest.mark.parametrize(
    ("names", "stagger_us", "share"),
    [({"named_groups": False}, 0.0, 0.8), ({"named_groups": False}, 3000.0, 0.2),
     ({"metadata": False}, 3000.0, 0.8)],
    ids=["unnamed", "unnamed, staggered", "no metadata, staggered"],
)  # fmt: skip
def test_no_two_collectives_are_mixed(
    names: dict[str, bool], stagger_us: float, share: float, seed: int, tmp_path: Path
) -> None:
    simulate_job(
        check_config(Config(**(JOB | names | {"seed": seed, "stagger_us": stagger_us}))), tmp_path
    )
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    answer = ask_trace(trace, "collective_times")
    rows = answer.to_pylist()
    numbers = true_collective(tmp_path, rows)
    members: dict[int, set[int]] = defaultdict(set)
    for row, number in zip(rows, numbers, strict=True):
        if row["match"] is not None:
            members[row["match"]].add(number)
    assert all(len(true) == 1 for true in members.values())
    assert len(members) > share * len(set(numbers))
    unnamed = "named_groups" in names
    guesses = {r["match"] for r in rows if r["guessed"]}
    assert guesses == (set(members) if unnamed else guesses)
    assert coverage_of(answer).get("guessed_matches", 0) == len(guesses)
    if unnamed:  # what is left alone says why
        reasons = {r["reason"] for r in rows if r["match"] is None}
        assert "its group is not recorded: which ranks took part cannot be told" in reasons


class Rows:
    """Calls of ranks 0, 1, … in order; those that share a colour end together."""

    def __init__(self, colours: list[int], calls: int, scatter_ns: float) -> None:
        dice = np.random.default_rng(len(colours))
        ends = np.cumsum(dice.integers(50_000, 90_000, (max(colours) + 1, calls)), axis=1)
        offset = dice.integers(-(10**7), 10**7, len(colours))
        own = [ends[c] + offset[k] for k, c in enumerate(colours)]
        self.end = np.concatenate(own) + dice.normal(0, scatter_ns, calls * len(colours)).astype(
            int
        )
        self.start = self.end - 10_000
        self.rank = np.repeat(np.arange(len(colours)), calls)
        self.type = np.tile(np.arange(calls) % 2, len(colours))
        self.size = np.full(len(self.rank), 4096)
        self.order = self.end
        self.group_size = np.full(len(self.rank), colours.count(0))
        self.timed = np.ones(len(self.rank), bool)


def told(rows: Rows) -> list[int]:
    chosen = np.arange(len(rows.rank))
    number = unnamed_groups(rows, chosen, np.zeros(len(chosen), np.int64))
    return [int(number[rows.rank == rank][0]) for rank in range(rows.rank[-1] + 1)]


@pytest.mark.parametrize("colours", [[0, 0, 1, 1], [0, 1, 2, 0, 1, 2], [0, 1, 1, 0, 0, 1]])
def test_ranks_that_end_together_are_a_group(colours: list[int]) -> None:
    number = told(Rows(colours, 12, 1000.0))
    pairs = {(a, b) for a in range(len(colours)) for b in range(a)}
    assert {(a, b) for a, b in pairs if number[a] == number[b]} == {
        (a, b) for a, b in pairs if colours[a] == colours[b]
    }
    assert min(number) > 0


def test_ranks_that_cannot_be_told_apart_are_left_alone() -> None:
    """All four end together, and two are a group."""
    rows = Rows([0, 0, 0, 0], 12, 1000.0)
    rows.group_size[:] = 2
    assert told(rows) == [-1, -1, -1, -1]
    few = Rows([0, 0, 1, 1], 2, 1000.0)
    assert told(few) == [-1, -1, -1, -1]


def test_as_many_ranks_as_the_group_has_are_the_group() -> None:
    assert told(Rows([0, 0, 0], 1, 1000.0)) == [0, 0, 0]
