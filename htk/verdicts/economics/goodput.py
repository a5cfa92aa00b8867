"""How much of a job's time moves it on, given its failures, checkpoints, restarts and spares."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.core.chart import Bar
from htk.base.core.label import Label
from htk.base.core.ranges import ValueRange
from htk.base.errors import UsageError
from htk.base.schema import FLOAT64, TEXT, table
from htk.physics.failures import (
    Checkpointing,
    TimeShares,
    best_checkpointing,
    divide_job_time,
    spread_of_run,
    waiting_share,
    young_interval,
)
from htk.verdicts.economics.uncertain_inputs import (
    CHANCE,
    Inputs,
    ObservedCount,
    evaluate_draws,
    find_interval,
    middle_of,
    shares_of_width,
)

_DAY = 86_400.0
_HOUR = 3600.0
_ZERO = ValueRange(0.0, 0.0)
_MOST = ValueRange(0.9, 0.9)
_ALL = ValueRange(1.0, 1.0)
_MOST_SPARES = 4096
_LEAST = 1e-4  # useful time of a job that ends
_ENOUGH = 1e-3  # of the time, that more spares would save

RETURNS = table(
    part=(TEXT, "What the time went to."),
    share_pct=(FLOAT64, "Of the wall time, with each input in its middle."),
    share_pct_lo90=(FLOAT64, "Nine of ten jobs within the given ranges have more than this …"),
    share_pct_hi90=(FLOAT64, "… and less than this."),
    days=(FLOAT64, "Of the run; null: no tokens and rate given."),
)
LABEL = Label(
    "goodput",
    "How much of a job's time moves it on, and how often should it save?",
    Bar("part", ("share_pct",)),
)
_PARTS = {
    "useful": "useful work",
    "checkpoints": "standing still for checkpoints",
    "lost_work": "work done again",
    "recovery": "detection and restart",
    "waiting": "waiting for a node",
}


@dataclass(frozen=True)
class GoodputJob:
    """A job and what befalls it; times in seconds, `failures` of the whole job in a second."""

    gpus: int
    failures: ValueRange | ObservedCount
    restart: ValueRange
    checkpoint: ValueRange
    gpus_per_node: int = 8
    detect: ValueRange = _ZERO
    write: ValueRange = _ZERO
    every: float | None = None  # None: the best
    memory_checkpoint: ValueRange | None = None
    memory_share: ValueRange = _MOST
    memory_restart: ValueRange | None = None
    spares: int = 0
    repair: ValueRange | None = None  # None: a failed node is back, or replaced, with the restart
    node_share: ValueRange = _ALL  # of the failures: that take a node
    tokens: float | None = None
    tokens_per_s: ValueRange | None = None
    price: ValueRange | None = None  # of a GPU-hour
    watts: ValueRange | None = None  # of a GPU

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise UsageError("GPUs, and GPUs of a node, must be at least 1")
        if not 0 <= self.spares <= _MOST_SPARES:
            raise UsageError(f"spare nodes: from 0 to {_MOST_SPARES} were expected")
        if max(self.memory_share.high, self.node_share.high) > 1:
            raise UsageError("a share of failures must be at most 1")
        if not self.failures.middle > 0:
            raise UsageError("failures: a positive rate was expected")
        for name, value in (("tokens", self.tokens), ("time between checkpoints", self.every)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name}: a positive number was expected")
        if self.tokens_per_s is not None and not self.tokens_per_s.low > 0:
            raise UsageError("tokens per second: a positive number was expected")
        if not self.checkpoint.high > 0 and self.every is None:
            raise UsageError("a checkpoint that costs nothing has no best interval: give --every")

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / self.gpus_per_node)

    @property
    def inputs(self) -> Inputs:
        """Return the inputs of the answer, by option."""
        named: dict[str, ValueRange | ObservedCount | None] = {
            "failures": self.failures,
            "detect": self.detect,
            "restart": self.restart,
            "checkpoint": self.checkpoint,
            "checkpoint_write": self.write,
            "memory_checkpoint": self.memory_checkpoint,
            "memory_share": self.memory_share if self.memory_checkpoint else None,
            "memory_restart": self.memory_restart,
            "repair": self.repair,
            "node_share": self.node_share if self.repair else None,
            "tokens_per_s": self.tokens_per_s,
            "price": self.price,
            "watts": self.watts,
        }
        return {name: value for name, value in named.items() if value is not None}


def split_wall_time(job: GoodputJob) -> Result:
    """Return a row for each part of the wall time; the rest of the answer is in the coverage."""
    middle = middle_of(job.inputs)
    plan = _choose_plan(job, middle)
    _refuse_overlapping(plan)
    draws, answers = evaluate_draws(job.inputs, lambda drawn: _compute_answer(job, plan, drawn))
    expected = _compute_answer(job, plan, middle)
    wall_days = expected.get("run_days")
    rows = []
    for name, words in _PARTS.items():
        low, high = find_interval(answers[name])
        if high > 0:
            days = None if wall_days is None else wall_days * expected[name]
            shares_pct = 100 * expected[name], 100 * low, 100 * high
            rows.append(dict(zip(RETURNS.names, (words, *shares_pct, days), strict=True)))
    facts = _collect_facts(job, plan, middle, expected)
    facts |= {f"{name}_90": find_interval(answers[name]) for name in expected if name not in _PARTS}
    facts["goodput_pct"] = 100 * expected["useful"]
    facts["goodput_pct_90"] = tuple(100 * end for end in find_interval(answers["useful"]))
    asked = "run_days" if "run_days" in expected else "useful"
    facts["width_of"] = asked
    facts["width_comes_from"] = shares_of_width(draws, answers[asked])
    return Result(LABEL, pa.Table.from_pylist(rows, schema=RETURNS), facts)


def fewest_spares(job: GoodputJob, middle: Mapping[str, float]) -> int | None:
    """Return the fewest spare nodes with which the job waits for less than a thousandth of its
    time; None: no repair time is given, or no number of them does."""
    if job.repair is None:
        return None
    busy = middle["failures"] * middle["node_share"] * middle["repair"]
    return next((n for n in range(_MOST_SPARES) if waiting_share(n, busy) < _ENOUGH), None)


def _build_plan(job: GoodputJob, drawn: Mapping[str, float]) -> Checkpointing:
    memory = job.memory_checkpoint is not None
    memory_every = (job.every or 1.0) if memory else None
    return Checkpointing(
        job.every or 1.0,
        drawn["checkpoint"],
        drawn["checkpoint_write"],
        memory_every,
        drawn.get("memory_checkpoint", 0.0),
        drawn.get("memory_share", 0.0),
    )


def _choose_plan(job: GoodputJob, middle: Mapping[str, float]) -> Checkpointing:
    """Return the plan with its intervals: as given, else the best for the middle of all inputs."""
    plan = _build_plan(job, middle)
    disk, memory = _read_recoveries(middle)
    best = best_checkpointing(middle["failures"], disk, plan, memory)
    if job.every is None:
        return best
    inner = None if best.memory_every is None else min(best.memory_every, job.every)
    return replace(plan, every=job.every, memory_every=inner)


def _refuse_overlapping(plan: Checkpointing) -> None:
    if plan.write > plan.every + plan.cost:
        raise UsageError(
            f"a checkpoint every {plan.every:.0f} s would begin before the one before is written "
            f"({plan.write:.0f} s): give a longer --every or a shorter --checkpoint-write"
        )


def _read_recoveries(drawn: Mapping[str, float]) -> tuple[float, float | None]:
    """From disk, and from memory."""
    memory = drawn.get("memory_restart")
    return (
        drawn["detect"] + drawn["restart"],
        None if memory is None else drawn["detect"] + memory,
    )


def _compute_answer(
    job: GoodputJob, plan: Checkpointing, drawn: Mapping[str, float]
) -> dict[str, float]:
    """Return all figures for one value of each input, with the intervals of the plan."""
    drawn_plan = replace(_build_plan(job, drawn), every=plan.every, memory_every=plan.memory_every)
    disk, memory = _read_recoveries(drawn)
    rate = drawn["failures"]
    split: TimeShares = divide_job_time(rate, disk, drawn_plan, memory)
    if "repair" in drawn:
        busy = rate * drawn["node_share"] * drawn["repair"]
        split = split.with_waiting(waiting_share(job.spares, busy))
    if split.useful < _LEAST:
        raise UsageError("the job never ends: failures come faster than it restarts and saves")
    figures = {name: getattr(split, name) for name in _PARTS}
    if job.tokens is None or "tokens_per_s" not in drawn:
        return figures
    wall = job.tokens / drawn["tokens_per_s"] / split.useful
    wall += drawn[CHANCE] * spread_of_run(rate, disk, drawn_plan, wall)
    wall = max(wall, job.tokens / drawn["tokens_per_s"])
    figures["run_days"] = wall / _DAY
    figures["run_failures"] = rate * wall
    held = (job.nodes + job.spares) * job.gpus_per_node if job.spares else job.gpus
    if "price" in drawn:
        figures["run_cost"] = held * wall / _HOUR * drawn["price"]
    if "watts" in drawn:
        figures["run_mwh"] = job.gpus * drawn["watts"] * wall / _HOUR / 1e6
    return figures


def _collect_facts(
    job: GoodputJob,
    plan: Checkpointing,
    middle: Mapping[str, float],
    expected: Mapping[str, float],
) -> dict[str, object]:
    rate = middle["failures"]
    alone = plan.cost > 0 and plan.memory_every is None
    facts: dict[str, object] = {
        "gpus": job.gpus,
        "nodes": job.nodes,
        "spare_nodes": job.spares,
        "hours_between_failures": 1 / rate / _HOUR,
        "failures_per_million_gpu_hours": rate / job.gpus * _HOUR * 1e6,
        "checkpoint_every_s": plan.every,
        "interval_is_best": job.every is None,
        "memory_checkpoint_every_s": plan.memory_every,
        "young_every_s": young_interval(rate, plan.cost) if alone else None,
        "minutes_lost_per_failure": (1 - expected["useful"]) / rate / 60,
        "fewest_spares": fewest_spares(job, middle),
    }
    return facts | {name: value for name, value in expected.items() if name not in _PARTS}
