"""Change points over runs: found where planted, quiet where nothing changed."""

import numpy as np
import pytest

from htk.verdicts.history.archive import KeptRun
from htk.verdicts.history.changes import FALSE_ALARMS, build_changes_result, find_changes, series_of
from htk.verdicts.history.notes import Remarks
from htk.verdicts.history.tables import RUNS


def runs_of(values: list[float], column: str = "step_time_ns", **row: object) -> list[KeptRun]:
    empty = dict.fromkeys(RUNS.names)
    return [
        KeptRun(
            empty
            | {"run": f"{k:016x}", "recorded_at": f"2026-01-01T{k // 60:02d}:{k % 60:02d}"}
            | {column: value}
            | row,
            Remarks(tags={"model": "m", "commit": f"c{k}"}),
        )
        for k, value in enumerate(values)
    ]


def test_two_planted_changes_are_found_and_named() -> None:
    rng = np.random.default_rng(1)
    level = np.repeat([100e6, 107e6, 103e6], [20, 15, 25])
    values = level * rng.normal(1, 0.004, 60)
    (series,) = series_of(runs_of(values.tolist()), ["model"], "step_time")
    first, second = find_changes([series])
    assert (first.first, second.first) == (20, 35)
    assert first.change_pct == pytest.approx(7, abs=0.5)
    assert second.change_pct == pytest.approx(-3.7, abs=0.5)
    assert first.counts == (20, 15) and second.counts == (15, 25)
    assert min(first.confidence, second.confidence) > 0.999
    assert first.earliest <= 20 <= first.latest
    answer = build_changes_result([first, second], [series]).to_pylist()
    assert [row["run"] for row in answer] == [f"{20:016x}", f"{35:016x}"]
    assert answer[0]["confidence_pct"] > 99.9 and answer[1]["runs_after"] == 25


def test_a_history_without_a_change_shows_one_in_a_hundred_times() -> None:
    """Three metrics of forty runs each: the chance is that of all together."""
    rng = np.random.default_rng(2)
    alarms, trials = 0, 100
    for _ in range(trials):
        three = [
            series_of(runs_of(rng.normal(100, 2, 40).tolist(), column), [], metric)[0]
            for metric, column in (
                ("step_time", "step_time_ns"),
                ("mfu", "mfu_pct"),
                ("exposed_comm", "exposed_comm_ns"),
            )
        ]
        alarms += bool(find_changes(three))
    # Of 100 trials at 1 %, more than 5 come about with a chance of 1 in 1,000.
    assert alarms <= 5 and FALSE_ALARMS == 0.01


def test_one_bad_run_is_no_change() -> None:
    values = [100.0, 101, 99, 100, 150, 100, 99, 101, 100, 100]
    assert not find_changes(series_of(runs_of(values), [], "step_time"))


def test_other_gpus_ranks_and_models_are_other_series() -> None:
    slow = runs_of([100.0] * 6, device_name="A100", world_size=8)
    fast = runs_of([50.0] * 8, device_name="H100", world_size=8)
    more = runs_of([30.0] * 7, device_name="H100", world_size=16)
    nothing = runs_of([], device_name="H100")
    series = series_of([*slow, *fast, *more, *nothing], ["model"], "step_time")
    assert [(one.name, len(one.runs)) for one in series] == [
        ("m, H100, 8 ranks", 8),
        ("m, H100, 16 ranks", 7),
        ("m, A100, 8 ranks", 6),
    ]
    assert not find_changes(series)
    assert series_of(slow, ["model"], "mfu") == []
    assert len(series_of(slow, ["commit"], "step_time")) == 6
