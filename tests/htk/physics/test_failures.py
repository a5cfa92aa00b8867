"""Goodput by formula against simulated jobs, and against what was worked out by hand."""

import math
import random
from dataclasses import replace

import pytest

from htk.physics.failures import (
    Checkpointing,
    TimeShares,
    best_checkpointing,
    best_interval,
    divide_job_time,
    spread_of_run,
    waiting_share,
    young_interval,
)

HOUR = 3600.0


def _recovered(random_: random.Random, rate: float, recovery: float) -> float:
    """Time until a recovery ends that failures begin anew."""
    spent = 0.0
    while (lasted := random_.expovariate(rate)) < recovery:
        spent += lasted
    return spent + recovery


def _simulated(
    rate: float, recovery: float, plan: Checkpointing, failures: int
) -> dict[str, float]:
    """Run from failure to failure; a checkpoint counts once its write has ended."""
    dice = random.Random(4)
    wall = useful = saving = down = 0.0
    segment = plan.every + plan.cost
    for _ in range(failures):
        ran = dice.expovariate(rate)
        saved = max(math.floor((ran - plan.write) / segment), 0)
        useful += saved * plan.every
        saving += saved * plan.cost
        stood = _recovered(dice, rate, recovery)
        down += stood
        wall += ran + stood
    return {"useful": useful / wall, "checkpoints": saving / wall, "recovery": down / wall}


@pytest.mark.parametrize(
    ("hours", "recovery", "every", "cost", "write"),
    [(2.8, 400, 600, 20, 0), (0.5, 300, 500, 60, 0), (1.0, 900, 1500, 5, 400),
     (20, 60, 7200, 90, 0)],
)  # fmt: skip
def test_shares_are_those_of_a_simulated_job(
    hours: float, recovery: float, every: float, cost: float, write: float
) -> None:
    plan = Checkpointing(every, cost, write)
    seen = _simulated(1 / (hours * HOUR), recovery, plan, 60_000)
    split = divide_job_time(1 / (hours * HOUR), recovery, plan)
    for part, share in seen.items():
        assert getattr(split, part) == pytest.approx(share, abs=0.006), part
    whole = split.useful + split.checkpoints + split.lost_work + split.recovery
    assert whole == pytest.approx(1)


def _simulated_twice(
    rate: float, disk: float, memory: float, plan: Checkpointing, saves: int
) -> tuple[float, float]:
    """Interval by interval: those in memory, then the checkpoint on disk."""
    dice = random.Random(7)
    assert plan.memory_every is not None
    count = round(plan.every / plan.memory_every)
    wall = down = 0.0
    for _ in range(saves):
        interval = 0
        while interval <= count:
            inner = plan.memory_every + plan.memory_cost
            length = inner if interval < count else plan.cost
            ran = dice.expovariate(rate)
            if ran >= length:
                wall += length
                interval += 1
                continue
            survives = dice.random() < plan.memory_share
            stood = _recovered(dice, rate, memory if survives else disk)
            interval = interval if survives else 0
            down += stood
            wall += ran + stood
    return saves * plan.every / wall, down / wall


def test_two_levels_are_those_of_a_simulated_job() -> None:
    plan = Checkpointing(6000, 120, memory_every=600, memory_cost=10, memory_share=0.8)
    useful, down = _simulated_twice(1 / HOUR, 600, 120, plan, 4000)
    split = divide_job_time(1 / HOUR, 600, plan, 120)
    assert split.useful == pytest.approx(useful, abs=0.01)
    assert split.recovery == pytest.approx(down, abs=0.006)
    assert split.useful + split.checkpoints + split.lost_work + split.recovery == pytest.approx(1)


def test_memory_that_survives_nothing_is_one_level() -> None:
    both = Checkpointing(1800, 60, memory_every=1800, memory_cost=0, memory_share=0.0)
    one_level, two_levels = (
        divide_job_time(1 / HOUR, 300, p) for p in (Checkpointing(1800, 60), both)
    )
    assert two_levels.useful == pytest.approx(one_level.useful)
    assert two_levels.lost_work == pytest.approx(one_level.lost_work)


@pytest.mark.parametrize(("hours", "cost"), [(0.2, 120), (2.8, 20), (100, 300), (5000, 1)])
def test_the_best_interval_leaves_more_than_its_neighbours(hours: float, cost: float) -> None:
    rate = 1 / (hours * HOUR)
    best = best_interval(rate, cost)
    useful = {
        f: divide_job_time(rate, 300, Checkpointing(f * best, cost)).useful for f in (0.9, 1.0, 1.1)
    }
    assert useful[1.0] > max(useful[0.9], useful[1.1])
    assert best < young_interval(rate, cost)
    assert best == pytest.approx(
        young_interval(rate, cost), rel=0.5 * cost * rate + 0.6 * math.sqrt(cost * rate)
    )


def test_nothing_ever_fails_where_checkpoints_alone_cost() -> None:
    split = divide_job_time(1e-30, 600, Checkpointing(900, 100))
    assert split.useful == 0.9 and split.lost_work == 0
    assert split.checkpoints == pytest.approx(0.1)


def test_best_intervals_of_two_levels_leave_more_than_one_level() -> None:
    plan = Checkpointing(1, 120, memory_every=1, memory_cost=2, memory_share=0.9)
    best = best_checkpointing(1 / HOUR, 600, plan, 120)
    assert best.memory_every is not None and best.memory_every < best.every / 3
    alone = best_checkpointing(1 / HOUR, 600, Checkpointing(1, 120))
    useful = divide_job_time(1 / HOUR, 600, best, 120).useful
    assert useful > divide_job_time(1 / HOUR, 600, alone).useful + 0.05
    whole = best.every / best.memory_every  # checkpoints in memory for one on disk
    assert whole == pytest.approx(round(whole))
    for other in (0.8, 1.3):  # no other number of them, nor other intervals, are better
        count = max(round(whole * other), 1)
        changed = replace(best, every=count * best.memory_every)
        assert divide_job_time(1 / HOUR, 600, changed, 120).useful < useful + 1e-3


@pytest.mark.parametrize(("spares", "hours"), [(0, 6.0), (2, 6.0), (3, 1.5)])
def test_waiting_for_nodes_is_that_of_a_simulated_cluster(spares: int, hours: float) -> None:
    """Repairs of a fixed length: the formula needs no distribution."""
    dice = random.Random(11)
    repair, rate, now, waited = hours * HOUR, 1 / (3 * HOUR), 0.0, 0.0
    ends: list[float] = []
    for _ in range(40_000):
        now += dice.expovariate(rate)
        ends = [end for end in ends if end > now] + [now + repair]
        if len(ends) > spares:
            first = min(ends)
            waited += first - now
            now = first
            ends.remove(first)
    assert waiting_share(spares, rate * repair) == pytest.approx(waited / now, abs=0.01)


def test_runs_scatter_as_simulated_ones_do() -> None:
    rate, recovery, plan = 1 / (3 * HOUR), 400.0, Checkpointing(1200, 20)
    dice = random.Random(2)
    walls = []
    for _ in range(1500):
        wall, saved = 0.0, 0
        while saved < 360:  # intervals: five days of work
            ran = dice.expovariate(rate)
            done = min(math.floor(ran / 1220), 360 - saved)
            saved += done
            wall += 1220 * done if saved == 360 else ran + _recovered(dice, rate, recovery)
        walls.append(wall)
    mean = sum(walls) / len(walls)
    spread = math.sqrt(sum((w - mean) ** 2 for w in walls) / len(walls))
    useful = divide_job_time(rate, recovery, plan).useful
    assert mean == pytest.approx(360 * 1200 / useful, rel=0.01)
    assert spread_of_run(rate, recovery, plan, mean) == pytest.approx(spread, rel=0.15)


def test_a_job_that_waits_keeps_its_shares_of_the_rest() -> None:
    """A quarter of the time without enough nodes: three quarters of what each share was."""
    waits = TimeShares(0.6, 0.2, 0.15, 0.05).with_waiting(0.25)
    assert waits.useful == pytest.approx(0.45) and waits.checkpoints == pytest.approx(0.15)
    assert waits.lost_work == pytest.approx(0.1125) and waits.recovery == pytest.approx(0.0375)
    assert waits.waiting == 0.25


def test_a_background_write_costs_the_same_where_memory_saves_nothing() -> None:
    alone = Checkpointing(1800, 60, 400)
    both = replace(alone, memory_every=1800.0)
    one, two = (divide_job_time(1 / HOUR, 300, plan) for plan in (alone, both))
    assert two.useful == pytest.approx(one.useful)
    assert two.recovery == pytest.approx(one.recovery)
    assert two.lost_work == pytest.approx(one.lost_work)


def test_two_levels_with_a_write_in_the_background_are_those_of_a_simulated_job() -> None:
    """A failure of disk during the write goes back to the checkpoint before it."""
    plan = Checkpointing(6000, 60, 2000, memory_every=600, memory_cost=10, memory_share=0.5)
    dice = random.Random(12)
    interval = saved = 0  # of 10 in memory, then one on disk; those on disk
    wall = down = since = 0.0  # since the last on disk
    for _ in range(60_000):
        length = 610 if interval < 10 else 60
        ran = dice.expovariate(1 / HOUR)
        if ran >= length:
            wall, since = wall + length, since + length
            interval += 1
            if interval > 10:
                interval, saved, since = 0, saved + 1, 0.0
            continue
        survives = dice.random() < 0.5
        stood = _recovered(dice, 1 / HOUR, 120 if survives else 600)
        wall, down, since = wall + ran + stood, down + stood, since + ran
        if not survives:
            saved -= since < 2000
            interval, since = 0, 2000.0
    split = divide_job_time(1 / HOUR, 600, plan, 120)
    assert split.useful == pytest.approx(6000 * saved / wall, abs=0.012)
    assert split.recovery == pytest.approx(down / wall, abs=0.004)


@pytest.mark.parametrize("x", [1e-9, 1e-4, 0.03, 0.7, 0.999, 1.0, 1.5, 8.0, 30.0])
def test_the_best_interval_solves_its_equation(x: float) -> None:
    """(1 - λτ)·e^(λ(τ+δ)) = 1, found anew by halving; x = λδ."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if math.log1p(-middle) + middle + x > 0 if middle < 1 else False:
            low = middle
        else:
            high = middle
    assert best_interval(1.0, x) == pytest.approx(low, rel=1e-6)
    assert best_interval(1 / HOUR, x * HOUR) == pytest.approx(low * HOUR, rel=1e-6)


@pytest.mark.parametrize("memory_share", [0.0, 0.3, 0.9, 1.0])
def test_plans_are_the_same_in_any_unit_of_time(memory_share: float) -> None:
    plan = Checkpointing(1, 1200, 300, 1, 200, memory_share)
    longer = Checkpointing(1, 120_000, 30_000, 1, 20_000, memory_share)
    best = best_checkpointing(1e-5, 6000, plan, 1200)
    far = best_checkpointing(1e-7, 600_000, longer, 120_000)
    assert best.memory_every is not None and far.memory_every is not None
    assert far.every == pytest.approx(100 * best.every)
    assert far.memory_every == pytest.approx(100 * best.memory_every)


def test_memory_as_dear_as_disk_is_written_no_oftener() -> None:
    plan = Checkpointing(1, 60, memory_every=1, memory_cost=60, memory_share=0.5)
    best = best_checkpointing(1 / HOUR, 300, plan)
    assert best.every == best.memory_every


def test_where_nothing_fails_or_nothing_is_paid_there_is_no_trade() -> None:
    assert best_interval(0.0, 60) == math.inf and best_interval(-1.0, 60) == math.inf
    assert best_interval(1 / HOUR, 0.0) == 0.0


def test_an_interval_is_no_shorter_than_the_write_in_the_background() -> None:
    """A write of 5000 s, for 10 s of which the job stands still."""
    best = best_checkpointing(1 / HOUR, 300, Checkpointing(1, 10, 5000))
    assert best.every == 4990


def test_runs_scatter_by_the_level_that_failures_go_back_to() -> None:
    """Three of four failures lose up to 100 s, the fourth up to 1000, and 50 s each besides."""
    plan = Checkpointing(990, 10, 20, memory_every=95, memory_cost=5, memory_share=0.75)
    dice = random.Random(3)
    squares = [
        (50 + dice.uniform(0, 100 if dice.random() < 0.75 else 1000)) ** 2 for _ in range(200_000)
    ]
    expected = math.sqrt(7 * sum(squares) / len(squares))
    assert spread_of_run(0.001, 30, plan, 7000) == pytest.approx(expected, rel=0.01)
