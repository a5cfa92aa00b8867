"""Waits on aligned clocks against the schedule of simulated jobs, whose clocks are far apart."""

import json
from pathlib import Path

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.thinned import thinned

SKEWED = {
    "layers": 2,
    "nodes": 3,
    "gpus_per_node": 4,
    "strategy": "hybrid_shard",
    "seq": 512,
    "steps": 2,
    "stagger_us": 1000.0,
    "clock_offset_us": 10_000.0,
    "clock_drift_ppm": 20.0,
}


def simulated(folder: Path, **more: object) -> Trace:
    simulate_job(check_config(Config(**(SKEWED | more))), folder)  # type: ignore[arg-type]
    return open_trace(folder, OpenOptions(cache=False))


@pytest.mark.parametrize("seed", thinned(range(2)))
def test_waits_are_those_of_the_schedule_whatever_the_clocks_say(seed: int, tmp_path: Path) -> None:
    tiny = {"model": "tiny", "hidden": 512, "heads": 8, "ffn": 1024, "vocab": 8000}
    trace = simulated(tmp_path, **tiny, layers=4, tensor_parallel=2, micro_batch=1, seed=seed)
    truth = {
        (rank, c["group"], c["type"], c["seq"]): wait
        for c in json.loads((tmp_path / "truth.json").read_text())["collectives"]
        for rank, wait in zip(c["ranks"], c["wait_ns"], strict=True)
    }
    rows = [
        r
        for r in ask_trace(trace, "collective_times").to_pylist()
        if r["match"] is not None and r["members_present"] == r["members_expected"]
    ]
    assert len(rows) > 600
    error = np.array(
        [r["wait_ns"] - truth[r["rank"], r["group"], r["type"], r["seq"]] for r in rows]
    )
    assert np.median(np.abs(error)) <= 200
    assert np.quantile(np.abs(error), 0.99) <= 2000
    within = np.abs(error) <= 2 + 3 * np.array([r["wait_ns_sigma"] for r in rows])
    assert within.mean() > 0.9
    raw = ask_trace(trace, "collective_times", align=False).to_pylist()
    unaligned = sum(r["wait_ns"] or 0 for r in raw)
    total = sum(truth.values())
    assert abs(unaligned / total - 1) > 0.1  # the clocks matter


@pytest.mark.parametrize(("seed", "late"), thinned([(0, 5), (2, 7), (4, 9), (6, 11)], 4))
def test_a_planted_straggler_is_found_whatever_the_clocks_say(
    seed: int, late: int, tmp_path: Path
) -> None:
    trace = simulated(
        tmp_path,
        model="gpt3-126m",
        micro_batch=4,
        seed=seed,
        plants=(f"straggler:rank={late},factor=1.5",),
    )
    first, second = ask_trace(trace, "stragglers").to_pylist()[:2]
    assert first["rank"] == late
    assert first["cost_to_others_ns"] > 2 * second["cost_to_others_ns"]
    blamed = [r["blamed_rank"] for r in ask_trace(trace, "late_arrivals", n=0).to_pylist()]
    assert max(set(blamed), key=blamed.count) == late
