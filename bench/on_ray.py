"""What Ray costs: CPU time of driver, workers and cluster against one process, and the driver's
memory, for jobs of several sizes with few and with many events.

The start of a local cluster is what asking about two ranks costs more there than in one process.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.process_tree import TreeUse, measure_tree

QUESTION = "time-breakdown"
STEPS = (1, 4)  # of each job: few events and many
START_RANKS = 2
START_TRIES = 1


def on_ray(jobs: Sequence[tuple[int, int, Path]], start_job: Path, scratch: Path) -> None:
    """Print a line for each job of so many ranks and steps, from a cold cache; the answers must
    agree."""
    starts = [_both(start_job, scratch / f"start{k}") for k in range(START_TRIES)]
    start_s = sorted(away.all_cpu_s - here.all_cpu_s for here, away in starts)[START_TRIES // 2]
    print(json.dumps({"command": "start of a local cluster", "cpu_s": round(start_s, 2)}))
    for ranks, steps, job in jobs:
        here, away = _both(job, scratch / f"{ranks}-{steps}")
        more = away.all_cpu_s - start_s - here.all_cpu_s
        figures = {
            "ranks": ranks,
            "steps": steps,
            "one_process_cpu_s": round(here.all_cpu_s, 2),
            "ray_cpu_s": round(away.all_cpu_s, 2),
            "without_start_ratio": round((away.all_cpu_s - start_s) / here.all_cpu_s, 2),
            "more_ms_a_file": round(1e3 * more / ranks, 1),
            "driver_anonymous_mb": round(away.anonymous[away.command] / 1e6),
            "one_process_anonymous_mb": round(here.anonymous[here.command] / 1e6),
        }
        print(json.dumps(figures), flush=True)


def _both(job: Path, scratch: Path) -> tuple[TreeUse, TreeUse]:
    """Ask about a job in one process and on a cluster of two workers, each from a cold cache."""
    uses, answers = [], []
    for on in ("threads", "ray"):
        output = scratch / f"{on}.csv"
        scratch.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "HTK_CACHE_DIR": str(scratch / f"cache-{on}")}
        environment.pop("RAY_ADDRESS", None)
        environment["RAY_worker_niceness"] = "0"  # on a busy machine nice workers would take hours
        words = [sys.executable, "-m", "htk", QUESTION, str(job), "--on", on, "-o", str(output)]
        use = measure_tree(words, environment)
        if use.exit_code:
            raise SystemExit(f"{' '.join(words)}: exit code {use.exit_code}")
        uses.append(use)
        answers.append(output.read_text())
    if answers[0] != answers[1]:
        raise SystemExit(f"{job}: the answers differ")
    return uses[0], uses[1]
