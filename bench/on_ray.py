"""What Ray costs: CPU time of driver, workers and cluster against one process, and the driver's
memory, for jobs of several sizes with few and with many events.

    python -m bench.on_ray ray|threads SMALL_JOB JOB ANSWER FIGURES

asks about the small job, which starts the cluster and its workers, then about the other, and writes
the CPU seconds that each took in all processes. The start varies by seconds: what Ray costs for
each file shows only in a cluster that runs.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.process_tree import cpu_seconds_below, measure_tree

START_RANKS = 8  # so that each worker does some of everything
STEPS = (1, 4)  # of each job: few events and many


@dataclass(frozen=True)
class Use:
    """CPU time and memory of one way to ask."""

    start_cpu_s: float
    cpu_s: float
    driver_anonymous_mb: int


def on_ray(jobs: Sequence[tuple[int, int, Path]], start_job: Path, scratch: Path) -> None:
    """Print a line for each job of so many ranks and steps, from a cold cache; the answers must
    agree."""
    for ranks, steps, job in jobs:
        here, away = _both(start_job, job, scratch / f"{ranks}-{steps}")
        figures = {
            "ranks": ranks,
            "steps": steps,
            "start_cpu_s": round(away.start_cpu_s, 2),
            "one_process_cpu_s": round(here.cpu_s, 2),
            "ray_cpu_s": round(away.cpu_s, 2),
            "ratio": round(away.cpu_s / here.cpu_s, 2),
            "more_ms_a_file": round(1e3 * (away.cpu_s - here.cpu_s) / ranks, 1),
            "driver_anonymous_mb": away.driver_anonymous_mb,
            "one_process_anonymous_mb": here.driver_anonymous_mb,
        }
        print(json.dumps(figures), flush=True)


def _both(start_job: Path, job: Path, scratch: Path) -> tuple[Use, Use]:
    """Ask about a job in one process and on a cluster of two workers, each from a cold cache."""
    uses, answers = [], []
    scratch.mkdir(parents=True, exist_ok=True)
    for on in ("threads", "ray"):
        answer, figures = scratch / f"{on}-answer.json", scratch / f"{on}.json"
        environment = {**os.environ, "HTK_CACHE_DIR": str(scratch / f"cache-{on}")}
        environment.pop("RAY_ADDRESS", None)
        environment["RAY_worker_niceness"] = "0"  # on a busy machine nice workers would take hours
        words = [sys.executable, "-m", "bench.on_ray", on, str(start_job), str(job)]
        use = measure_tree([*words, str(answer), str(figures)], environment)
        if use.exit_code:
            raise SystemExit(f"{' '.join(words)}: exit code {use.exit_code}")
        uses.append(Use(**json.loads(figures.read_text()), driver_anonymous_mb=use.command_mb))
        answers.append(answer.read_text())
    if answers[0] != answers[1]:
        raise SystemExit(f"{job}: the answers differ")
    return uses[0], uses[1]


def ask(on: str, start_job: str, job: str, answer: str, figures: str) -> None:
    """Ask about both jobs, in a process of its own; keep the answer about the second."""
    import htk

    took = []
    for path in (start_job, job):
        before = cpu_seconds_below(os.getpid())
        rows = htk.open(path, on=on).time_breakdown()
        took.append(round(cpu_seconds_below(os.getpid()) - before, 2))
    Path(answer).write_text(json.dumps(rows.to_pylist()))
    Path(figures).write_text(json.dumps({"start_cpu_s": took[0], "cpu_s": took[1]}))


if __name__ == "__main__":
    ask(*sys.argv[1:])
