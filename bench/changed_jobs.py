"""Whether `htk diff` names what changed between two runs of a simulated job, and how much of it.

    python bench/changed_jobs.py                      200 pairs, and 50 that differ by chance alone
    python bench/changed_jobs.py --pairs 20 --seed 7  fewer, others
    python bench/changed_jobs.py -v                   a line for each pair
    python bench/changed_jobs.py --slight 6           so many pairs of each change of 2 % alone

Each pair is a job of 2 to 64 ranks recorded for 5, 6 or 30 steps, and another run of it in which
one to three things were changed: a GPU, all GPUs, one kernel, the loading of data, links, the
allocator. What each is worth is known from the simulator: the same run is timed with each subset of
the changes, and the part of one is its Shapley value, the mean over all orders in which they could
have come. Ends with 1 where a goal is missed.
"""

import argparse
import itertools
import math
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.job import simulate_job
from htk.recording.simulate.program import build_programs
from htk.recording.simulate.schedule import Schedule
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.comparison.causes import ChangeCause
from htk.verdicts.comparison.compared import compare_work

PLACES = ((1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 8), (8, 8))  # nodes, GPUs of each
WEIGHTS = (3, 4, 4, 4, 2, 1, 1)  # small jobs are drawn more often: large ones take longer
LEAST = 0.01  # of a step: what is worth less has no place of its own
NEAR, TIE = 0.2, 0.9
FIRST_GOAL, SHARE_GOAL = 0.95, 0.9
SLIGHT_JOB = Config(
    model="gpt3-126m", layers=3, gpus_per_node=4, micro_batch=2, steps=6, stacks=False
)
# Changes of 2 %, and the share of pairs in which each must be named first.
SLIGHT = {
    "straggler:node=0,factor=1.02": 1.0,
    "straggler:rank=2,factor=1.02": 1.0,
    "regressed_kernel:name=gemm_bf16_256x128_ldg8_f2f_stages_64x3_nn,step=10,factor=1.02": 2 / 3,
}
KINDS = {
    "straggler": "gpu",
    "regressed_kernel": "kernel",
    "starved_loader": "loader",
    "slow_link": "links",
    "full_allocator": "allocator",
}


@dataclass(frozen=True)
class Pair:
    """A job, and what is changed in its second run."""

    job: Config
    plants: tuple[str, ...]


@dataclass
class Score:
    """What was said of some pairs."""

    pairs: int = 0
    first_right: int = 0
    misses: list[float] = None  # type: ignore[assignment]
    alarms: int = 0
    equal: int = 0

    def __post_init__(self) -> None:
        self.misses = []

    @property
    def reached(self) -> bool:
        """Whether every goal is reached."""
        near = sum(miss <= NEAR for miss in self.misses)
        return (
            self.first_right >= FIRST_GOAL * self.pairs
            and near >= SHARE_GOAL * len(self.misses)
            and not self.alarms
        )

    def __str__(self) -> str:
        near = sum(miss <= NEAR for miss in self.misses)
        middle = 100 * statistics.median(self.misses or [0.0])
        return (
            f"what changed named first in {self.first_right} of {self.pairs} pairs; its part "
            f"within 20 % in {near} of {len(self.misses)}, median miss {middle:.0f} %; alarms in "
            f"{self.alarms} of {self.equal} equal pairs"
        )


def drawn_job(chance: random.Random) -> Config:
    """Return a job of any size that is recorded for a few steps."""
    nodes, gpus = chance.choices(PLACES, WEIGHTS)[0]
    layers, hidden = chance.choice([(2, 1024), (3, 2048), (4, 1024), (6, 1536)])
    return Config(
        model="changed",
        layers=layers,
        hidden=hidden,
        heads=16,
        ffn=hidden * 8 // 3 // 64 * 64,
        vocab=32000,
        gpu="a100-80gb",
        nodes=nodes,
        gpus_per_node=gpus,
        strategy=chance.choice(["full_shard", "ddp", "shard_grad_op"]),
        micro_batch=chance.choice([1, 2, 4]),
        seq=chance.choice([1024, 2048]),
        steps=5 if nodes * gpus > 16 else chance.choice([5, 5, 6, 6, 30]),
        stacks=False,
        seed=chance.randrange(10**6),
    )


def drawn_plants(chance: random.Random, job: Config) -> tuple[str, ...]:
    """Return one to three changes of a job, none of the same kind."""
    several = ["slow_link", "straggler"] if job.nodes > 1 else []
    kinds = ["straggler", "regressed_kernel", "starved_loader", "full_allocator", "slow_link"]
    chosen = chance.sample(sorted({*kinds, *several}), chance.choice([1, 1, 2, 2, 3]))
    return tuple(_drawn_plant(chance, job, kind) for kind in chosen)


def _drawn_plant(chance: random.Random, job: Config, kind: str) -> str:
    first = f"step={job.first_step}"
    rank = f"rank={chance.randrange(job.ranks)}"
    if kind == "straggler":
        where = chance.choice([rank, rank, f"node={chance.randrange(job.nodes)}"])
        return f"straggler:{where},factor={chance.choice([1.1, 1.2, 1.35])}"
    if kind == "regressed_kernel":
        name = chance.choice(["flash_fwd", "flash_bwd", "silu_functor", "gemm"])
        where = chance.choice(["", f",{rank}"])
        return f"regressed_kernel:name={name},{first},factor={chance.choice([1.3, 1.6, 2])}{where}"
    if kind == "starved_loader":
        where = chance.choice(["", f",{rank}"])
        return f"starved_loader:{first},ms={chance.choice([8, 20, 40])}{where}"
    if kind == "slow_link":
        return f"slow_link:node={chance.randrange(job.nodes)},factor={chance.choice([1.5, 2.5])}"
    return f"full_allocator:{first},{rank},times=3,ms={chance.choice([3, 8])}"


def step_ns(job: Config) -> float:
    """Return the median time of a step after the first, as the simulator has it."""
    schedule = Schedule(check_config(job), build_programs(job), process_groups(job))
    ends = []
    for number in range(job.first_step, job.first_step + job.steps):
        ends.append(max(int(stage.gpu_end.max()) for stage in schedule.step(number)))
    return float(np.median(np.diff(ends)))


def true_parts(pair: Pair) -> dict[str, float]:
    """Return what each change adds to a step, in ns: its Shapley value over all subsets."""
    plants = pair.plants
    worth = {
        subset: step_ns(replace(pair.job, run=1, plants=subset))
        for size in range(len(plants) + 1)
        for subset in itertools.combinations(plants, size)
    }
    return {plant: _shapley(plant, plants, worth) for plant in plants}


def _shapley(plant: str, plants: tuple[str, ...], worth: dict[tuple[str, ...], float]) -> float:
    others = [p for p in plants if p != plant]
    total = 0.0
    for size in range(len(others) + 1):
        orders = math.factorial(size) * math.factorial(len(others) - size)
        for before in itertools.combinations(others, size):
            after = tuple(p for p in plants if p in before or p == plant)
            total += orders * (worth[after] - worth[before])
    return total / math.factorial(len(plants))


def recorded(folder: Path, job: Config) -> Trace:
    """Return a job's recording, written and read."""
    shutil.rmtree(folder, ignore_errors=True)
    simulate_job(job, folder)
    return open_trace(folder, OpenOptions(cache=False))


def names_it(cause: ChangeCause, plant: str, job: Config) -> bool:
    """Return whether a cause names this change: its kind, and the ranks where they are some."""
    name, _, rest = plant.partition(":")
    options = dict(pair.split("=") for pair in rest.split(","))
    kind = "gpu" if options.get("name") == "" else KINDS[name]
    if cause.kind != kind:
        return False
    if name == "slow_link":
        return True
    everyone = set(range(job.ranks))
    ranks = {int(options["rank"])} if "rank" in options else everyone
    if name == "straggler" and "node" in options:
        low = int(options["node"]) * job.gpus_per_node
        ranks = set(range(low, low + job.gpus_per_node))
    return set(cause.ranks) == ranks


def judge(folder: Path, pair: Pair, score: Score, verbose: bool) -> None:
    """Compare a pair, and add what was right to the score."""
    base = recorded(folder / "base", pair.job)
    new = recorded(folder / "new", replace(pair.job, run=1, plants=pair.plants))
    causes = compare_work(base.tables, new.tables).causes
    if not pair.plants:
        score.equal += 1
        score.alarms += bool(causes)
        if causes and verbose:
            print(f"alarm: {pair.job.seed}: {causes}")
        return
    step = step_ns(pair.job)
    parts = true_parts(pair)
    worth = {plant: part for plant, part in parts.items() if abs(part) > LEAST * step}
    if not worth:
        return
    score.pairs += 1
    most = max(worth.values())
    candidates = [plant for plant, part in worth.items() if part >= TIE * most]
    right = bool(causes) and any(names_it(causes[0], p, pair.job) for p in candidates)
    score.first_right += right
    misses = [_miss(causes, plant, part, pair.job) for plant, part in worth.items()]
    score.misses += misses
    if verbose:
        true = ", ".join(f"{plant} {part / 1e6:.2f}" for plant, part in parts.items())
        named = "; ".join(f"{c.kind} {c.part_ns / 1e6:.2f} {list(c.ranks)[:4]}" for c in causes)
        marks = " ".join(f"{miss:.2f}" for miss in misses)
        size = f"{pair.job.ranks} ranks {pair.job.steps} steps {pair.job.strategy}"
        print(f"{'ok ' if right else 'BAD'} [{marks}] {size} step {step / 1e6:.1f} ms seed "
              f"{pair.job.seed}: true {true} | said {named}", flush=True)  # fmt: skip


def _miss(causes: Sequence[ChangeCause], plant: str, part: float, job: Config) -> float:
    named = [cause.part_ns for cause in causes if names_it(cause, plant, job)]
    return abs(max(named) / part - 1) if named else 1.0


def measured(pairs: int, equal: int, seed: int, verbose: bool = False) -> Score:
    """Return how right `htk diff` is on pairs drawn with a seed."""
    chance, score = random.Random(seed), Score()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs + equal):
            job = drawn_job(chance)
            plants = drawn_plants(chance, job) if number < pairs else ()
            judge(Path(folder), Pair(job, plants), score, verbose)
    return score


def measured_slight(pairs: int, seed: int = 100) -> dict[str, int]:
    """Return in how many pairs each change of 2 % is named first; "": in how many equal ones a
    cause is."""
    named = dict.fromkeys((*SLIGHT, ""), 0)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for number in range(pairs):
            job = replace(SLIGHT_JOB, seed=seed + number)
            base = recorded(folder / "base", job)
            for plant in named:
                plants = (plant,) if plant else ()
                new = recorded(folder / "new", replace(job, run=1, plants=plants))
                causes = compare_work(base.tables, new.tables).causes
                named[plant] += bool(causes) and (not plant or names_it(causes[0], plant, job))
    return named


def _say_slight(pairs: int) -> int:
    named = measured_slight(pairs)
    for plant, count in named.items():
        print(f"{plant or 'nothing'}: named first in {count} of {pairs}")
    missed = [plant for plant, least in SLIGHT.items() if named[plant] < least * pairs]
    return int(bool(missed) or named[""] > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether htk diff names what changed.")
    parser.add_argument("--slight", type=int, default=0)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--equal", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    if options.slight:
        return _say_slight(options.slight)
    score = measured(options.pairs, options.equal, options.seed, options.verbose)
    print(score)
    return int(not score.reached)


if __name__ == "__main__":
    sys.exit(main())
