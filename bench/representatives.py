"""Do what-ifs from a few ranks (`--representatives`) agree with those from all?

usage: python -m bench.representatives [--nodes 4] [--folder DIR]

Jobs are simulated (sharding, tensor parallelism, experts of uneven load, a slow rank, a slow host,
a slow network, steps that the host bounds), and each edit is answered from all ranks and from
representatives. One line of JSON for each job: how many ranks were chosen and how far the answers
differ; the last lines sum up each edit, and how many answers from all ranks are within the part of
the 90 % interval that leaving out ranks adds. `--time` measures the command itself.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.reach import measured
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.representatives import choose_representatives

_Z90 = 1.645
BASE: dict[str, Any] = {
    "model": "gpt3-126m",
    "layers": 4,
    "seq": 1024,
    "micro_batch": 8,
    "gpus_per_node": 8,
    "strategy": "ddp",
    "steps": 3,
}
SMALL: dict[str, Any] = {"seq": 128, "micro_batch": 1}
JOBS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp": {"strategy": "full_shard"},
    "hybrid": {"strategy": "hybrid_shard", "clock_offset_us": 300.0},
    "tensor": {"tensor_parallel": 4},
    "experts": {
        "experts": 8,
        "active_experts": 2,
        "expert_parallel": 8,
        "expert_skew": 0.3,
    },
    "slow rank": {"strategy": "full_shard", "plants": ("straggler:rank=13,factor=1.3",)},
    "slow host": {"plants": ("straggler:node=2,factor=1.2",)},
    "noise": {"plants": ("straggler:rank=5,factor=1.15",), "noise": 0.03},
    "slow network": {"inter_gbps": 5.0},
    "accumulation": {"strategy": "full_shard", "accumulation": 2},
    "host-bound": {"strategy": "full_shard", **SMALL},
    "host-bound ddp": SMALL,
    "tails": {"heavy_tails": True},
    "host-bound, again": {"strategy": "full_shard", **SMALL, "seed": 8},
}
EDITS = (
    ("batch", "2x"),
    ("batch", "0.5x"),
    ("seq", "2x"),
    ("network", "bandwidth=2x"),
    ("network", "bandwidth=0.5x"),
    ("replace", "gemm=2x"),
    ("hardware", "h100"),
    ("precision", "fp32"),
    ("checkpointing", "on"),
    ("overlap", "perfect"),
    ("remove_syncs", "on"),
    ("no_data_wait", "on"),
    ("host", "2x"),
    ("graphs", "on"),
    ("accumulation", "2x"),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=4)
    options.add_argument("--folder", type=Path, help="where the jobs are kept")
    options.add_argument("--time", metavar="PATH", help="measure the command on this job instead")
    chosen = options.parse_args()
    if chosen.time:
        commands(chosen.time)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch)
        rows = []
        for seed, (name, change) in enumerate(JOBS.items(), 1):
            job = folder / f"{name.replace(' ', '-')}-{chosen.nodes}"
            if not job.exists():
                config = Config(**BASE | {"nodes": chosen.nodes, "seed": seed} | change)
                simulate_job(check_config(config), job)
                (job / "truth.json").unlink()
            rows += compared(name, str(job))
    for edit in dict.fromkeys(row["edit"] for row in rows):
        print(json.dumps({"edit": edit, **summed([r for r in rows if r["edit"] == edit])}))
    print(json.dumps({"edit": "all", **summed(rows)}))


def commands(job: str) -> None:
    """Measure a what-if from all ranks and from representatives, in turn, from a warm cache."""
    with tempfile.TemporaryDirectory() as scratch:
        words = ["whatif", job, "--batch", "2x", "-o", f"{scratch}/answer.txt"]
        ways = {"all": words, "representatives": [*words, "--representatives"]}
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for k in range(4):
            for name, way in ways.items():
                figures = measured(way, Path(scratch) / "cache")
                runs[name] += [figures] if k else []  # the first reads the files
        for name, figures_of in runs.items():
            medians = {key: float(np.median([f[key] for f in figures_of])) for key in figures_of[0]}
            print(json.dumps({"ranks": name, **medians}), flush=True)


def compared(name: str, job: str) -> list[dict[str, Any]]:
    """Answer all edits from all ranks and from representatives."""
    trace = open_trace(job)
    chosen = choose_representatives(trace)
    few, every = build_baseline(chosen.tables), build_baseline(trace.tables)
    rows = []
    for edit in () if few.refused or every.refused else EDITS:
        exact, near = predict_answer(every, [edit]), predict_answer(few, [edit])
        if exact.step_ns is None or near.step_ns is None:  # a guard refused it
            continue
        off = float(np.log(near.step_ns / exact.step_ns))
        rows.append(
            {
                "edit": " ".join(edit),
                "off": off,
                "added": near.sigma_by_cause["left_out"],
            }
        )
    line = {
        "job": name,
        "ranks": len(trace.ranks),
        "chosen": len(chosen.ranks),
        "verdicts": [every.gate.verdict, few.gate.verdict],
        "launch_bound": every.launch_bound,
        **summed(rows),
    }
    print(json.dumps(line), flush=True)
    return rows


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how far answers differ, in percent, and how many are within the added interval."""
    if not rows:
        return {}
    off = 100 * np.array([row["off"] for row in rows])
    added = 100 * np.array([row["added"] for row in rows])
    return {
        "answers": len(rows),
        "median_pct": round(float(np.median(abs(off))), 3),
        "worst_pct": round(float(off[abs(off).argmax()]), 3),
        "added_sigma_pct": [round(float(np.median(added)), 2), round(float(added.max()), 2)],
        "within_added": int((abs(off) <= _Z90 * added).sum()),
    }


if __name__ == "__main__":
    main()
