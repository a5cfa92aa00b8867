"""Do causes come in the order of what removing each gains, and are the gains right?

usage: python -m bench.causes [--cases 40] [--seed 1] [--kind data] [--healthy 0] [-v]

Jobs with one to three planted faults are simulated, and each again without one fault at a time:
what the step then takes less is what removing that fault gains. `htk recommendations` is held to
it: the first cause, each gain (within a fifth), how often 90 % intervals hold. Kinds of jobs: data
(parallel), model (tensor and pipeline parallelism, experts), parts (two steps, a file cut short,
one rank of many). Causes that a pipeline has without faults, such as uneven stages, do not count.
With --healthy so many jobs without a fault, of 1 to 512 ranks, are looked at for causes above 2 %
of the step.
Exit status 4: short of the limits.
"""

import argparse
import random
import re
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from htk.analyses import find_analysis
from htk.answers.ask import ask_trace
from htk.answers.table import table_of_answer
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace

NAMED = {  # what a planted fault is called, in any of these words
    "straggler": r"slow GPU|computes longer",
    "slow_link": r"link is slow",
    "starved_loader": r"waits for data",
    "full_allocator": r"alloc",
    "cpu_bound": r"launches slower|launch-bound",
}
NEAR = 0.2  # of the true gain
LEAST = {"first": 0.9, "near": 0.9, "median": 0.08}
_WORTH = 0.01  # of the step: what gains less need not be named
_DESIGN = 0.5  # of a gain that the job has without its faults: then it is none of theirs
_HEALTHY_PCT = 2.0
# What healthy jobs have too: bounds that a design comes near.
_ALLOWED = (
    r"communication is exposed|kernels too small|tensor cores|16 bit|one kernel could be|scores of"
)
_SIZE: dict[str, Any] = {"model": "check", "heads": 16, "vocab": 32000, "gpu": "a100-80gb",
                         "stacks": False}  # fmt: skip


@dataclass
class Score:
    """What was found, over all cases."""

    first: int = 0
    cases: int = 0
    errors: list[float] = field(default_factory=list)  # of gains, relative
    held: int = 0

    @property
    def near(self) -> float:
        return sum(error <= NEAR for error in self.errors) / max(len(self.errors), 1)

    @property
    def median(self) -> float:
        return statistics.median(self.errors) if self.errors else 0.0

    @property
    def is_met(self) -> bool:
        first = self.first >= LEAST["first"] * self.cases
        return first and self.near >= LEAST["near"] and self.median <= LEAST["median"]

    def __str__(self) -> str:
        return (
            f"first cause right {self.first} of {self.cases}; gains within 20 % "
            f"{round(self.near * len(self.errors))} of {len(self.errors)}, median miss "
            f"{100 * self.median:.1f} %, intervals held {self.held} of {len(self.errors)}"
        )


def draw_data_parallel(chance: random.Random) -> dict[str, Any]:
    """Return a data-parallel job."""
    nodes, gpus = chance.choice([(1, 4), (1, 8), (2, 4), (4, 4)])
    layers, hidden = chance.choice([(4, 1024), (6, 2048), (8, 1536)])
    job = {
        **_SIZE,
        "steps": chance.choice([3, 4, 6]),
        "layers": layers,
        "hidden": hidden,
        "ffn": hidden * 8 // 3 // 64 * 64,
        "seq": chance.choice([1024, 2048]),
        "micro_batch": chance.choice([1, 2, 4]),
        "nodes": nodes,
        "gpus_per_node": gpus,
        "strategy": chance.choice(["full_shard", "ddp", "shard_grad_op"]),
        "seed": chance.randrange(10**6),
    }
    if nodes > 1 and chance.random() < 0.3:
        job |= {"clocks": "process", "clock_offset_us": 10_000.0}
    return job


def draw_model_parallel(chance: random.Random) -> dict[str, Any]:
    """Return a job with tensor or pipeline parallelism, or with experts."""
    job = draw_data_parallel(chance) | {"strategy": "ddp", "gpus_per_node": 4}
    way = chance.choice(["tensor", "pipeline", "expert"])
    job |= {f"{way}_parallel": chance.choice([2, 4])}
    if way == "pipeline":
        return job | {"layers": 8, "accumulation": 8}
    return job | ({"experts": 8, "active_experts": 2, "ffn": 1024} if way == "expert" else {})


def draw_parts(chance: random.Random) -> dict[str, Any]:
    """Return a job of which less is recorded: two steps, one rank, or files that were cut."""
    job = draw_data_parallel(chance)
    ranks = job["nodes"] * job["gpus_per_node"]
    cut = {"cut_last_step": True, "steps": max(int(job["steps"]), 4)}
    parts: list[dict[str, Any]] = [{"steps": 2}, cut, {"ranks_only": (chance.randrange(ranks),)}]
    return job | chance.choice(parts)


KINDS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "data": draw_data_parallel,
    "model": draw_model_parallel,
    "parts": draw_parts,
}


def draw_faults(chance: random.Random, job: dict[str, Any]) -> list[str]:
    """Return one to three faults to plant."""
    nodes = job["nodes"]
    ranks = job.get("ranks_only", range(nodes * job["gpus_per_node"]))
    kinds = ["cpu_bound", "full_allocator", "starved_loader"]
    kinds += ["slow_link"] if nodes > 1 and len(ranks) > 1 else []
    kinds += ["straggler"] if len(ranks) > 1 else []  # of one rank there is no other to compare
    drawn = {
        "straggler": f"rank={chance.choice(ranks)},factor={chance.choice([1.15, 1.25, 1.4])}",
        "slow_link": f"node={chance.randrange(nodes)},nic=0",
        "starved_loader": f"ms={chance.choice([8, 20, 40])}",
        "full_allocator": f"rank={chance.choice(ranks)},times=3,ms={chance.choice([3, 8])}",
        "cpu_bound": f"rank={chance.choice(ranks)}",
    }
    return [f"{kind}:{drawn[kind]}" for kind in chance.sample(kinds, chance.choice([1, 2, 2, 3]))]


def step_ns(folder: Path) -> float:
    """Return what a whole step takes, mean over ranks."""
    return statistics.mean(_whole_steps(folder).values())


def saved_ns(before: Path, after: Path) -> float:
    """Return what a step takes less than before, over those that are whole in both recordings."""
    longer, shorter = _whole_steps(before), _whole_steps(after)
    return statistics.mean(longer[step] - shorter[step] for step in longer.keys() & shorter.keys())


def _whole_steps(folder: Path) -> dict[tuple[int, int], int]:
    rows = ask_trace(open_trace(folder), "step_times").to_pylist()
    return {
        (row["rank"], row["step"]): row["gpu_period_ns"]
        for row in rows
        if row["complete"] and row["gpu_period_ns"]
    }


def simulated(job: dict[str, Any], faults: list[str], folder: Path) -> Path:
    """Write a job's traces to a folder of its own below `folder`; return that."""
    with tempfile.NamedTemporaryFile(dir=folder) as unique:
        folder_of_job = Path(unique.name + ".job")
    simulate_job(check_config(Config(**job, plants=tuple(faults))), folder_of_job)
    return folder_of_job


def causes_of(folder: Path) -> list[dict[str, Any]]:
    """Return the recommendations on a recording, however small they are."""
    answer = table_of_answer(open_trace(folder), find_analysis("recommendations"), {"min_pct": 0.0})
    rows: list[dict[str, Any]] = answer.to_pylist()
    return [row for row in rows if row["step_gain_ns"] is not None]


def judge(score: Score, job: dict[str, Any], faults: list[str], folder: Path) -> str:
    """Add a case to the score; return it in words."""
    recording = simulated(job, faults, folder)
    base, causes = step_ns(recording), causes_of(recording)
    if "pipeline_parallel" in job:  # its stages may be uneven by design
        causes = _beyond_design(causes, causes_of(simulated(job, [], folder)))
    gains = {
        fault: saved_ns(recording, simulated(job, [f for f in faults if f != fault], folder))
        for fault in faults
    }
    worth = {fault: gain for fault, gain in gains.items() if gain > _WORTH * base}
    if not worth:
        return "no fault costs anything"
    score.cases += 1
    most = max(worth.values())
    firsts = [_pattern(fault) for fault, gain in worth.items() if gain > 0.9 * most]
    score.first += bool(causes) and any(re.search(p, causes[0]["finding"]) for p in firsts)
    for fault, gain in worth.items():
        named = [row for row in causes if re.search(_pattern(fault), row["finding"])]
        if not named:
            score.errors.append(1.0)
            continue
        row = max(named, key=lambda r: r["step_gain_ns"])
        score.errors.append(abs(row["step_gain_ns"] / gain - 1))
        score.held += row["step_gain_ns_lo90"] <= gain <= row["step_gain_ns_hi90"]
    gains_named = [(row["finding"], round(row["step_gain_ns"] / 1e6, 2)) for row in causes[:4]]
    truth = {fault: round(gain / 1e6, 2) for fault, gain in worth.items()}
    miss = max(score.errors[-len(worth) :])
    return f"step {base / 1e6:.1f} ms, worst miss {miss:.2f}: {truth}; said {gains_named}"


def _beyond_design(
    causes: list[dict[str, Any]], of_design: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the causes without those that the same job has without faults, of as much."""
    usual = {row["finding"]: row["step_gain_ns"] for row in of_design}
    return [row for row in causes if usual.get(row["finding"], 0) < _DESIGN * row["step_gain_ns"]]


def _pattern(fault: str) -> str:
    return NAMED[fault.partition(":")[0]]


def draw_healthy(chance: random.Random) -> dict[str, Any]:
    """Return a job of 1 to 512 ranks that is large enough for its GPUs."""
    ranks = chance.choice([1, 1, 2, 4, 8, 8, 16, 32, 64, 128, 512])
    job = draw_data_parallel(chance)
    layers = 2 if ranks > 64 else job["layers"]
    size = {"hidden": 2048, "ffn": 5440, "seq": 2048, "micro_batch": 4, "layers": layers}
    return job | size | {"nodes": max(ranks // 8, 1), "gpus_per_node": min(ranks, 8)}


def alarms(folder: Path, job: dict[str, Any]) -> list[str]:
    """Return the causes above 2 % of the step that are told of a healthy job."""
    recording = simulated(job, [], folder)
    step = step_ns(recording)
    return [
        f"{row['finding']} {100 * row['step_gain_ns'] / step:.1f} %"
        for row in causes_of(recording)
        if 100 * row["step_gain_ns"] > _HEALTHY_PCT * step
        and not re.search(_ALLOWED, row["finding"])
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=sorted(KINDS), default="data")
    parser.add_argument("--healthy", type=int, default=0)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    chance, score = random.Random(options.seed), Score()
    for number in range(options.cases):
        job = KINDS[options.kind](chance)
        with tempfile.TemporaryDirectory() as folder:
            words = judge(score, job, draw_faults(chance, job), Path(folder))
        if options.verbose:
            print(f"{number}: {words}", flush=True)
    false_alarms = 0
    for number in range(options.healthy):
        job = draw_healthy(chance)
        with tempfile.TemporaryDirectory() as folder:
            named = alarms(Path(folder), job)
        false_alarms += bool(named)
        if options.verbose:
            ranks = job["nodes"] * job["gpus_per_node"]
            causes = ", ".join(named) or "nothing"
            print(f"healthy {number}, {ranks} ranks, {job['strategy']}: {causes}", flush=True)
    print(f"{score}; alarms on healthy jobs {false_alarms} of {options.healthy}")
    return 0 if (score.is_met or not options.cases) and not false_alarms else 4


if __name__ == "__main__":
    raise SystemExit(main())
