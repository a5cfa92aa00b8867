"""Selections in any order and number, against rows filtered one by one."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

RANKS, STEPS = 3, 4
TIMES = st.integers(0, 45)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Ranks 2, 4, 6 of four steps of 10 µs; each step launches on three streams, two in a range."""
    folder = tmp_path_factory.mktemp("selected")
    for rank in range(RANKS):
        events: list[Event] = []
        for k in range(STEPS):
            begin = 10 * k + rank
            events += [step(k, begin, 9), span(f"range {k % 2}", begin, 4)]
            for number, (delay, stream) in enumerate(((1, 7), (2, 20), (6, 22))):
                correlation = 10 * k + number + 1
                events += [
                    op(f"aten::op{number}", begin + delay, 0.9),
                    launch(correlation, begin + delay + 0.1, 0.5),
                    kernel(f"k{number}", begin + 2 * delay, 1.5, correlation, stream),
                ]
        write(folder / f"rank{rank}.json", *events, **of_rank(2 * rank + 2, 8))
    return open_trace(folder, OpenOptions(cache=False))


class Selections(RuleBasedStateMachine):
    """Each choice replaces the one of its kind; kinds add up, in whatever order they came."""

    full: Trace
    rows: list[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.now = self.full
        self.chosen: dict[str, Any] = {}

    @rule(ranks=st.sets(st.sampled_from([2, 4, 6]), min_size=1))
    def choose_ranks(self, ranks: set[int]) -> None:
        self.now = self.now.sel(ranks=sorted(ranks))
        self.chosen["ranks"] = ranks

    @rule(steps=st.sets(st.integers(0, STEPS), min_size=1))
    def choose_steps(self, steps: set[int]) -> None:
        self.now = self.now.sel(steps=sorted(steps))
        self.chosen["steps"] = steps

    @rule(first=TIMES, length=st.integers(1, 30))
    def choose_times(self, first: int, length: int) -> None:
        self.now = self.now.sel(from_ns=1000 * first, to_ns=1000 * (first + length))
        self.chosen["times"] = (1000 * first, 1000 * (first + length))

    @rule(name=st.sampled_from(["range 0", "range 1", "range", "nowhere"]))
    def choose_annotation(self, name: str) -> None:
        self.now = self.now.sel(annotation=name)
        self.chosen["annotation"] = name

    @rule()
    def begin_anew(self) -> None:
        self.now, self.chosen = self.now.everything, {}

    @rule()
    def look(self) -> None:
        expected = [row for row in self.rows if self.is_chosen(row)]
        kernels = self.now.tables["kernels"].to_pylist()
        key = ("rank", "name", "start_ns")
        assert sorted(tuple(r[k] for k in key) for r in kernels) == sorted(
            tuple(r[k] for k in key) for r in expected
        )
        links = self.now.tables["kernel_links"].to_pylist()
        ops = self.now.tables["cpu_ops"]
        assert len(ops) == sum(self.overlaps(row) for row in self.rows)
        for link, row in zip(links, kernels, strict=True):
            launched_by = ops.slice(link["op_row"], 1).to_pylist()[0]
            assert launched_by["rank"] == row["rank"]
            assert launched_by["name"][-1] == row["name"][-1]

    def is_chosen(self, row: dict[str, Any]) -> bool:
        low, high = self.chosen.get("times", (0, 1 << 60))
        name = self.chosen.get("annotation", "")
        return (
            row["rank"] in self.chosen.get("ranks", (row["rank"],))
            and row["step"] in self.chosen.get("steps", (row["step"],))
            and low <= row["launched_ns"] - self.full.origin_ns < high
            and (not name or name in row["range"])
        )

    def overlaps(self, row: dict[str, Any]) -> bool:
        """Return whether the operator that launched the row lies in part in what is chosen."""
        low, high = self.chosen.get("times", (0, 1 << 60))
        begin = row["launched_ns"] - 100 - self.full.origin_ns
        name = self.chosen.get("annotation", "")
        return (
            row["rank"] in self.chosen.get("ranks", (row["rank"],))
            and row["step"] in self.chosen.get("steps", (row["step"],))
            and begin < high
            and low < begin + 900
            and (not name or name in row["range"])
        )


@pytest.mark.hypothesis
def test_selections_in_any_order(trace: Trace) -> None:
    rows = trace.tables["kernels"].to_pylist()
    for row in rows:  # by construction: which step launched it, and in which range
        rank = row["rank"] // 2 - 1
        number = int(row["name"][-1])
        delay = (1, 2, 6)[number]
        row["step"] = round((row["start_ns"] / 1000 - rank - 2 * delay) / 10)
        row["range"] = f"range {row['step'] % 2}" if delay < 4 else ""
        row["launched_ns"] = row["start_ns"] - 1000 * delay + 100
    assert len(rows) == RANKS * STEPS * 3
    Selections.full, Selections.rows = trace, rows
    run_state_machine_as_test(
        Selections,
        settings=settings(
            max_examples=settings.default.max_examples // 2,
            stateful_step_count=12,
            suppress_health_check=list(HealthCheck),
        ),
    )
