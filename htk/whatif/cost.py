"""The cost of a prediction: money, energy, and the time that failures leave.

Arithmetic on step time and tokens; nothing here knows where they come from.
"""

from dataclasses import dataclass

from htk.base.errors import UsageError
from htk.physics.failures import Checkpointing, best_interval, divide_job_time

_HOUR = 3600.0
_SHORTEST_S = 1.0  # between checkpoints that cost nothing


def per_million_tokens(price_per_gpu_hour: float, gpus: float, tokens_per_s: float) -> float:
    """Return the price of a million tokens of the whole job, in the currency of the GPU's price."""
    return price_per_gpu_hour * gpus / _HOUR / tokens_per_s * 1e6


def per_run(price_per_gpu_hour: float, gpus: float, seconds: float) -> float:
    return price_per_gpu_hour * gpus * seconds / _HOUR


def joules_per_token(watts_per_gpu: float, gpus: float, tokens_per_s: float) -> float:
    """Return the energy per token, in joules.

    `watts_per_gpu` is the measured power, or else the GPU's limit, which gives an upper bound.
    """
    return watts_per_gpu * gpus / tokens_per_s


@dataclass(frozen=True)
class Goodput:
    share: float  # of the time that moves the run on
    checkpoint_every_s: float
    hours_between_failures: float  # of the whole job


def compute_goodput(
    gpus: float,
    gpu_mtbf_s: float,
    restart_s: float,
    checkpoint_s: float,
    checkpoint_every_s: float | None = None,
) -> Goodput:
    """Return the share of a run's time that checkpoints, restarts and lost work leave.

    A GPU fails every `gpu_mtbf_s` on average. Without an interval the best one is taken. Exact for
    failures at a constant rate (`models.failures`).
    """
    if min(gpus, gpu_mtbf_s) <= 0 or min(restart_s, checkpoint_s) < 0:
        raise UsageError("goodput: the time between failures must be positive, others at least 0")
    between = gpu_mtbf_s / gpus
    every = checkpoint_every_s or max(best_interval(1 / between, checkpoint_s), _SHORTEST_S)
    useful = divide_job_time(1 / between, restart_s, Checkpointing(every, checkpoint_s)).useful
    return Goodput(useful, every, between / _HOUR)
