"""How far waits on aligned clocks are from a simulated job's schedule, as rows of docs/reading.md.

python bench/waits.py [--ranks 8 64 256 1024] [--seed 3]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace

_PER_NODE = 8
_MODEL: dict[str, Any] = {
    "model": "tiny",
    "hidden": 512,
    "heads": 8,
    "ffn": 1024,
    "vocab": 8000,
    "layers": 4,
}
_JOB: dict[str, Any] = {
    "strategy": "hybrid_shard",
    "micro_batch": 1,
    "seq": 512,
    "steps": 4,
    "stagger_us": 1000.0,
}
_CLOCKS: dict[str, Any] = {"clock_offset_us": 10_000.0, "clock_drift_ppm": 20.0}


def row(ranks: int, clocks: str, seed: int, folder: Path) -> str:
    """Return a row: error of a wait, for calls that all members recorded."""
    nodes: dict[str, Any] = {
        "nodes": max(ranks // _PER_NODE, 1),
        "gpus_per_node": min(ranks, _PER_NODE),
    }
    config = Config(**_MODEL, **_JOB, **_CLOCKS, **nodes, clocks=clocks, seed=seed)
    simulate_job(check_config(config), folder)
    truth = {
        (rank, call["group"], call["type"], call["seq"]): wait
        for call in json.loads((folder / "truth.json").read_text())["collectives"]
        for rank, wait in zip(call["ranks"], call["wait_ns"], strict=True)
    }
    trace = open_trace(folder, OpenOptions(cache=False))
    trace.tables["collectives"]
    start = time.process_time()
    ask_trace(trace, "clock_alignment")
    solving = time.process_time() - start
    calls = [
        call
        for call in ask_trace(trace, "collective_times").to_pylist()
        if call["match"] is not None and call["members_present"] == call["members_expected"]
    ]
    keys = [(call["rank"], call["group"], call["type"], call["seq"]) for call in calls]
    error = np.abs([call["wait_ns"] - truth[key] for call, key in zip(calls, keys, strict=True)])
    sigma = np.array([call["wait_ns_sigma"] for call in calls])
    median, p99 = np.quantile(error, [0.5, 0.99]) / 1e3
    within = 100 * np.mean(error <= 1 + 2 * sigma)
    return (
        f"| {ranks:,} | {clocks} | {len(calls):,} | {median:.3f} µs | {p99:.2f} µs "
        f"| {within:.0f} % | {solving:.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 256, 1024])
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    for ranks in arguments.ranks:
        for clocks in ("node", "process"):
            with tempfile.TemporaryDirectory() as folder:
                print(row(ranks, clocks, arguments.seed, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
