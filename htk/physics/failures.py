"""How failures and checkpoints divide a job's time: exact means for failures without memory.

Failures come at a constant rate and strike recovery too, which then begins anew. A checkpoint stops
the job for its own cost; one that is written in the background can be restored only when its write
has ended. Work since the last one that can be restored is done again. With that, of each
e^(λR)/λ between two recoveries (R with the time of the background write) the job moves on by
τ/(e^(λ(τ+δ)) - 1): Daly (2006) with δ the checkpoint's cost, τ the work between two, and the best τ
is where (1 - λτ)·e^(λ(τ+δ)) = 1, of which √(2δ/λ) (Young 1974) is the first order.

With checkpoints in the memory of other nodes as well, most failures go back to those and the rest
to the last on disk; the mean time of the work between two on disk is the recursion over those in
memory. A node that failed is gone for its repair: with so many spares, the share of time in which
one is missing is Erlang's loss formula, whatever the distribution of repairs.
"""

import math
from dataclasses import dataclass

_LEAST = 1e-12


@dataclass(frozen=True)
class Checkpointing:
    """Times in seconds. `every`: work between two checkpoints on disk."""

    every: float
    cost: float  # that the job stands still
    write: float = 0.0  # in the background, until it can be restored
    memory_every: float | None = None  # work between two in memory; None: there are none
    memory_cost: float = 0.0
    memory_share: float = 0.0  # of the failures that memory survives


@dataclass(frozen=True)
class TimeShares:
    """Shares of the wall time; they sum to 1."""

    useful: float
    checkpoints: float
    lost_work: float
    recovery: float
    waiting: float = 0.0  # for a node

    def with_waiting(self, waiting: float) -> "TimeShares":
        """Return the shares of a job that stands still for such a share of its time."""
        runs = 1 - waiting
        return TimeShares(
            self.useful * runs,
            self.checkpoints * runs,
            self.lost_work * runs,
            self.recovery * runs,
            waiting,
        )


def divide_job_time(
    rate: float, recovery: float, plan: Checkpointing, memory_recovery: float | None = None
) -> TimeShares:
    """Return how the time of a job divides.

    Args:
        rate: failures of the whole job in a second.
        recovery: seconds from a failure until the job goes on from a checkpoint on disk.
        plan: the checkpoints.
        memory_recovery: the same from one in memory; None: as from disk.
    """
    if plan.memory_every is not None:
        again = recovery if memory_recovery is None else memory_recovery
        return _two_levels(rate, recovery, again, plan)
    segment = plan.every + plan.cost
    if rate * segment < _LEAST:
        useful = plan.every / segment
        return TimeShares(useful, 1 - useful, 0.0, 0.0)
    between = math.exp(_bound_exponent(rate * recovery)) / rate  # two recoveries that ended
    finished = math.exp(-_bound_exponent(rate * plan.write)) / math.expm1(
        _bound_exponent(rate * segment)
    )
    useful = finished * plan.every / between
    checkpoints = finished * plan.cost / between
    down = 1 - math.exp(-_bound_exponent(rate * recovery))
    return TimeShares(useful, checkpoints, max(1 - useful - checkpoints - down, 0.0), down)


def best_interval(rate: float, cost: float) -> float:
    """Return the seconds of work between checkpoints that leave most of the time, exactly."""
    if rate <= 0:
        return math.inf
    if cost <= 0:
        return 0.0
    return (1 + _compute_lambert_w(rate * cost)) / rate


def young_interval(rate: float, cost: float) -> float:
    """Return Young's first order of it."""
    return math.sqrt(2 * cost / rate)


def best_checkpointing(
    rate: float, recovery: float, plan: Checkpointing, memory_recovery: float | None = None
) -> Checkpointing:
    """Return the plan with the intervals that leave most of the time."""
    if plan.memory_every is None:
        every = max(best_interval(rate, plan.cost), plan.write - plan.cost)
        return _with_intervals(plan, every, None)
    memory_rate = max(rate * plan.memory_share, rate * 1e-6)
    inner = max(best_interval(memory_rate, plan.memory_cost), 1.0)
    outer = best_interval(max(rate * (1 - plan.memory_share), rate * 1e-6), plan.cost)
    best = plan
    most = -1.0
    for stretch in (0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0):
        for times in (0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0):
            count = max(round(outer * times / (inner * stretch)), 1)
            tried = _with_intervals(plan, count * inner * stretch, inner * stretch)
            useful = divide_job_time(rate, recovery, tried, memory_recovery).useful
            best, most = (tried, useful) if useful > most else (best, most)
    return best


def waiting_share(spares: int, repairs_at_once: float) -> float:
    """Return the share of time without enough nodes (Erlang's loss formula).

    Args:
        spares: nodes beyond those that the job needs.
        repairs_at_once: nodes that would be in repair on average, were the job never stopped:
            failures that take a node, in a second, times the seconds of a repair.
    """
    blocked = 1.0
    for servers in range(1, spares + 2):
        blocked = repairs_at_once * blocked / (servers + repairs_at_once * blocked)
    return blocked


def spread_of_run(rate: float, recovery: float, plan: Checkpointing, wall: float) -> float:
    """Return the standard deviation of a run's wall time by chance alone, in seconds.

    Failures as a compound Poisson process, each of which costs the recovery, the background write
    and what was done since the last checkpoint, uniform over the interval.
    """
    segment = plan.every + plan.cost
    fixed = recovery + plan.write
    if plan.memory_every is not None:
        inner = plan.memory_every + plan.memory_cost
        both = (plan.memory_share, inner), (1 - plan.memory_share, segment)
    else:
        both = (1.0, segment), (0.0, segment)
    square = sum(p * (fixed**2 + fixed * s + s * s / 3) for p, s in both)
    return math.sqrt(rate * wall * square)


def _with_intervals(plan: Checkpointing, every: float, memory: float | None) -> Checkpointing:
    return Checkpointing(every, plan.cost, plan.write, memory, plan.memory_cost, plan.memory_share)


def _two_levels(
    rate: float, recovery: float, memory_recovery: float, plan: Checkpointing
) -> TimeShares:
    """Return the time shares between two checkpoints on disk, with some in memory between them."""
    assert plan.memory_every is not None
    count = max(round(plan.every / plan.memory_every), 1)
    disk_share = 1 - plan.memory_share
    recoveries = [math.expm1(_bound_exponent(rate * r)) / rate for r in (memory_recovery, recovery)]
    down = plan.memory_share * recoveries[0] + disk_share * recoveries[1]
    # What is being written when a failure goes back to disk is done again.
    again = math.exp(_bound_exponent(rate * disk_share * plan.write))
    failed = _until_saved(rate, plan, count) * again
    wall = failed * (1 / rate + down)  # a failure each 1/rate of running
    useful = count * plan.memory_every
    saving = count * plan.memory_cost + plan.cost
    lost = max(wall - useful - saving - failed * down, 0.0)
    return TimeShares(useful / wall, saving / wall, lost / wall, failed * down / wall)


def _until_saved(rate: float, plan: Checkpointing, count: int) -> float:
    """Return the mean number of failures from one checkpoint on disk to the next.

    With failures F_i from the i-th interval in memory on: F_i = p + p_memory·F_i + p_disk·F_1 +
    (1 - p)·F_{i+1}; the last interval is that of the checkpoint on disk itself.
    """
    assert plan.memory_every is not None
    failures = []
    passes = []
    for segment in (plan.memory_every + plan.memory_cost, plan.cost):
        alive = math.exp(-_bound_exponent(rate * segment))
        goes_on = 1 - plan.memory_share * (1 - alive)
        failures.append((1 - alive) / goes_on)
        passes.append(alive / goes_on)
    once = 1 - passes[0]
    log_inverse = -_bound_exponent(-count * math.log(passes[0]))
    repeated = count if once < _LEAST else math.expm1(-log_inverse) / once
    return (failures[0] * repeated + failures[1]) / passes[1]


def _compute_lambert_w(x: float) -> float:
    """Return W(-e^(-1-x)) on the principal branch, by Halley's steps."""
    z = -math.exp(-1 - x)
    p = math.sqrt(max(2 * (1 + math.e * z), 0.0))
    w = -1 + p - p * p / 3 if x < 1 else z
    for _ in range(60):
        grown = math.exp(w)
        off = w * grown - z
        slope = grown * (w + 1)
        if abs(slope) < _LEAST:
            break
        step = off / (slope - (w + 2) * off / (2 * w + 2))
        w -= step
        if abs(step) < 1e-15:
            break
    return w


def _bound_exponent(exponent: float) -> float:
    """Return an exponent that does not overflow: beyond it nothing is left anyway."""
    return min(exponent, 600.0)
