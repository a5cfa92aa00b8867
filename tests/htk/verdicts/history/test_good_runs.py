"""The last good runs as a base: a new run is held against how they differ."""

from pathlib import Path

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.traces.compare.regression import judge_rules
from htk.traces.compare.rules import parse_rule
from htk.verdicts.history.archive import History
from htk.verdicts.history.costs import costs_of, costs_table, over_runs
from htk.verdicts.history.good_runs import last_good
from tests.htk.verdicts.history.recorded_runs import facts


def run_of(mean: float, rng: np.random.Generator, steps: int = 10) -> RecordedBaseline:
    """A run whose steps vary by 0.5 % round its own mean."""
    times = mean * rng.normal(1, 0.005, steps)
    series = Series(1.0, times, np.array([times.mean()]), times)
    return RecordedBaseline(steps, (0,), {"time": {"total": series}})


def test_the_base_by_hand() -> None:
    runs = [flat(100.0), flat(104.0), flat(96.0)]
    base = over_runs(runs)
    assert (base.steps, base.runs, base.ranks) == (3, 3, (0, 1))
    total = base.kinds["time"]["total"]
    assert sorted(total.by_step.tolist()) == [96, 100, 104] and total.by_rank.tolist() == [99, 101]
    (asked,) = judge_rules(base, flat(115.0), [parse_rule("step_time>10%")])
    # Runs have a variance of 16; one more differs from the mean of three by 16 * 4/3: 4.62 is one
    # sigma, and t of 2 degrees at 0.005 is 9.925.
    assert asked.change == pytest.approx(15) and asked.noise == pytest.approx(45.83, rel=1e-3)
    assert asked.verdict == "too noisy"


def flat(mean: float) -> RecordedBaseline:
    times = np.full(5, mean)
    ranks = np.array([mean - 1, mean + 1])
    return RecordedBaseline(5, (0, 1), {"time": {"total": Series(1.0, times, ranks, times)}})


def test_it_is_quiet_where_runs_differ_and_loud_where_one_is_slow() -> None:
    """Runs differ by 2 %, their steps by 0.5 %: a single base would alarm again and again."""
    rng = np.random.default_rng(3)
    rules = [parse_rule("step_time>1%")]
    quiet = single = caught = 0
    for _ in range(200):
        runs = [run_of(100 * rng.normal(1, 0.02), rng) for _ in range(8)]
        quiet += judge_rules(over_runs(runs[:-1]), runs[-1], rules)[0].verdict == "failed"
        single += judge_rules(runs[0], runs[-1], rules)[0].verdict == "failed"
        slow = run_of(120 * rng.normal(1, 0.02), rng)
        caught += judge_rules(over_runs(runs[:-1]), slow, rules)[0].verdict == "failed"
    assert quiet <= 5, "of 200 at 0.5 %: more than 5 with a chance of 1 in 1,000"
    assert single > 30 and caught > 195


def test_things_that_a_run_lacks_take_no_time_there() -> None:
    one, other = flat(100.0), flat(100.0)
    kernel = Series(2.0, np.full(5, 30.0), np.array([30.0, 30.0]), np.full(5, 28.0))
    one = RecordedBaseline(5, (0, 1), {**one.kinds, "kernel": {"gemm": kernel}})
    base = over_runs([one, other, other])
    gemm = base.kinds["kernel"]["gemm"]
    assert gemm.by_step.tolist() == [30, 0, 0] and gemm.least.tolist() == [28, 0, 0]
    assert gemm.often == pytest.approx(2 / 3) and gemm.by_rank.tolist() == [10, 10]


def test_costs_come_back_as_they_were() -> None:
    rng = np.random.default_rng(4)
    run = run_of(1e8, rng, steps=200)
    back = costs_of(costs_table(run))
    assert (back.steps, back.ranks) == (200, (0,))
    total, was = back.kinds["time"]["total"], run.kinds["time"]["total"]
    assert len(total.by_step) == 64 and total.mean == pytest.approx(was.by_step.mean(), rel=1e-3)
    table = costs_table(run)
    assert costs_table(back).equals(table)
    with pytest.raises(ValueError, match="expected 64"):
        costs_of(table.set_column(3, "by_step_ns", [[[1, 2, 3]]]))


def test_the_last_good_ones_are_taken_and_bad_ones_never(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    for number in range(8):
        history.add(facts(number), {"model": "m" if number else "other"})
        history.mark(f"{number:016x}", "bad" if number == 6 else "good", {})
    good = last_good(History(str(tmp_path)), 4, {})
    assert [run.row["name"] for run in good.runs] == ["run3", "run4", "run5", "run7"]
    assert good.base.runs == 4 and not good.notes
    (tmp_path / "costs" / f"{5:016x}.parquet").write_bytes(b"damage")
    good = last_good(History(str(tmp_path)), 20, {"model": "m"})
    assert [run.row["name"] for run in good.runs] == ["run1", "run2", "run3", "run4", "run7"]
    assert "costs" in good.notes[0]
    (note,) = last_good(History(str(tmp_path)), 7, {}).notes[1:]  # beside the damaged one
    assert note == "the good runs are of several models: m, other"
    with pytest.raises(UsageError, match="at least 3 were expected"):
        last_good(History(str(tmp_path)), 3, {"model": "other"})
    with pytest.raises(UsageError, match="runs at least"):
        last_good(History(str(tmp_path)), 2, {})
