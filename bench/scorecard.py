"""How right are the what-ifs? Predict simulated jobs from another one of them, then simulate those.

usage: python bench/scorecard.py [--quick] [-o scorecard.json]

The base is micro-batch 8, full_shard on two nodes. Predictions see trace files alone: the sidecar
with the simulator's configuration is deleted first. Each model is simulated with jitter and
contention on; a seed draws the efficiencies, the same for a base and what is held against it. Per
kind of what-if: predictions, median and 90th percentile of the error, how often the 90 % band held
the outcome, and the error of the naive answer. Exit status 4: worse than the margin.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from htk import api
from htk.analyses.whatif.answer import Answer, answer, stage
from htk.graph import steps_at_hand

MEDIAN_PCT, WORST_PCT = 5.0, 15.0
MODELS = (("gpt3-126m", 1024, None), ("llama2-7b", 512, 8), ("llama3-8b", 512, 4))
BASE = {"nodes": 2, "strategy": "full_shard", "micro-batch": 8}
CASES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("batch", "16", {"micro-batch": 16}),
    ("batch", "32", {"micro-batch": 32}),
    ("batch", "64", {"micro-batch": 64}),
    ("sharding", "shard_grad_op", {"strategy": "shard_grad_op"}),
    ("sharding", "hybrid_shard:4", {"strategy": "hybrid_shard"}),
    ("sharding", "ddp", {"strategy": "ddp"}),
    ("world", "16", {"nodes": 4}),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one model, one seed")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    models, seeds = (MODELS[:1], (1,)) if given.quick else (MODELS, (1, 2, 3))
    found = [row for model in models for seed in seeds for row in predicted(model, seed)]
    table = [summed(kind, found) for kind in sorted({str(r["kind"]) for r in found})]
    for line in table:
        sys.stdout.write(json.dumps(line) + "\n")
    if given.output:
        given.output.write_text(json.dumps({"kinds": table, "rows": found}, indent=1))
    bad = any(r["median_pct"] > MEDIAN_PCT or r["p90_pct"] > WORST_PCT for r in table)
    return 4 if bad else 0


def predicted(model: tuple[str, int, int | None], seed: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        start = stage(api.open(str(simulated(model, seed, {}, Path(folder) / "base"))).tables)
        rows = []
        for number, (kind, value, change) in enumerate(CASES):
            other = simulated(model, seed, change, Path(folder) / str(number))
            rows.append(held(model[0], kind, value, answer(start, [(kind, value)]), step_ns(other)))
    return rows


def held(model: str, kind: str, value: str, found: Answer, truth: float) -> dict[str, object]:
    """One prediction beside what came of it."""
    each = found.samples_ratio / found.devices_ratio
    naive = found.measured_ns * each
    low, high = found.band(1.645)
    return {
        "model": model,
        "kind": kind,
        "value": value,
        "verdict": found.verdict,
        "error_pct": None if found.step_ns is None else 100 * (found.step_ns / truth - 1),
        "naive_error_pct": 100 * (naive / truth - 1),
        "covered": low is not None and high is not None and low <= truth <= high,
    }


def summed(kind: str, rows: list[dict[str, object]]) -> dict[str, float | str | int]:
    mine = [r for r in rows if r["kind"] == kind]
    errors = np.abs([float(str(r["error_pct"])) for r in mine if r["error_pct"] is not None])
    naive = np.abs([float(str(r["naive_error_pct"])) for r in mine])
    return {
        "kind": kind,
        "n": len(mine),
        "refused": len(mine) - len(errors),
        "median_pct": round(float(np.median(errors)), 2) if len(errors) else float("inf"),
        "p90_pct": round(float(np.quantile(errors, 0.9)), 2) if len(errors) else float("inf"),
        "coverage_pct": round(100 * float(np.mean([bool(r["covered"]) for r in mine])), 1),
        "naive_median_pct": round(float(np.median(naive)), 2),
    }


def simulated(
    model: tuple[str, int, int | None], seed: int, change: dict[str, object], folder: Path
) -> Path:
    name, seq, layers = model
    options = {"model": name, "gpu": "a100-80gb", "gpus-per-node": 4, "seq": seq, "steps": 4}
    options |= {"seed": seed} | BASE | change | ({"layers": layers} if layers else {})
    words = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    command = [sys.executable, "-m", "htk", "simulate", *words, "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "truth.json").unlink()
    return folder


def step_ns(folder: Path) -> float:
    """The median step, the first left out."""
    steps = steps_at_hand(api.open(str(folder)).tables)
    return float(np.median([steps.periods[k] for k in steps.numbers[1:]]))


if __name__ == "__main__":
    sys.exit(main())
