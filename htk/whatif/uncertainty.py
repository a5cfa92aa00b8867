"""Uncertainty of an answer by cause, and the further recording that would reduce it most.

What edits leave uncertain (`edit_uncertainty`) is replayed twice for each cause, changed by more
and by less than was said; a bootstrap that draws all causes anew gives the same interval
(`bench/whatif.py`).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from htk.quantities.graph.gate import Gate
from htk.quantities.graph.replay import periods_beside
from htk.whatif.step_model import StepModel

SITE = 0.0033  # spread of one system with itself: MLPerf v4.0, Llama-2-70B LoRA
# What the profiler adds to a step that its host bounds: of 29 such steps on an H100, recorded with
# shapes and memory, half took 1.2 times as long as without it, a tenth 1.9 times (bench/gpu).
PROFILER = 0.25
# A host is not as fast from run to run, either: steps of one job without the profiler, of batches
# that its GPU was done with early, took from 10 to 18 ms.
HOST_RUNS = 0.15
_INDICATIVE = 2.0  # times wider
# Gauss and Hermite's points for the variance of a function of a normal variable: 0 and ±√3, which
# weigh 2/3 and 1/6; a kink that one sigma does not reach (communication comes to light) is seen.
_FAR = math.sqrt(3)

# Where uncertainty comes from, by the cause that an edit names.
_SOURCES = {
    "compute": "kernel",
    "memory": "kernel",
    "host": "kernel",
    "communication": "network",
    "skew": "skew",
    "distance": "distance",
    "site": "site",
    "profiler": "profiler",
    "left_out": "ranks left out",
}
# What is recorded is not known exactly either: this share of its uncertainty is taken to stay.
_STAYS = {"site": 1.0, "profiler": 0.0, "ranks left out": 0.0}
_NARROWS = 0.95  # of the uncertainty: what leaves more is not worth a recording
_RECORDINGS = {
    "profiler": "time some steps without the profiler and give that (--measured-step-ms)",
    "replay": "record three or more whole steps with event synchronisation enabled",
    "kernel": "{more}",
    "distance": "{more}",
    "network": "{more}, or measure collectives with nccl-tests",
    "skew": "record every rank of the job",
    "ranks left out": "ask without representatives",
    "site": "repeat the recording; what is left is how much one job varies from run to run",
}


def by_source(spread: Mapping[str, float]) -> dict[str, float]:
    """Return the uncertainty by source; causes are independent, so their squares add."""
    sigmas: dict[str, float] = {}
    for cause, sigma in spread.items():
        source = _SOURCES.get(cause, "replay")
        sigmas[source] = math.hypot(sigmas.get(source, 0.0), sigma)
    return sigmas


def sigma_by_cause(gate: Gate, edited: StepModel, step: int, here: int) -> dict[str, float]:
    """Return one sigma of the logarithm of the step, by cause. `here`: the replayed step."""
    wide = 1.0 if gate.verdict == "trusted" else _INDICATIVE
    sigmas = {"replay": wide * gate.residual_pct / 100, "site": SITE}
    sigmas |= {cause: wide * sigma for cause, sigma in edited.step_sigma.items()}
    for (cause, _), sigma in edited.edge_sigma.items():
        both = _measure_moves(edited, _FAR * sigma, step, here)
        sigmas[cause] = math.hypot(sigmas.get(cause, 0.0), wide * math.hypot(*both) / math.sqrt(6))
    return sigmas


def at_least(
    sigmas: Mapping[str, float], step: int, alone: Sequence[tuple[Mapping[str, float], int]]
) -> dict[str, float]:
    """Return the uncertainty by cause, in ns no smaller than that of each of several answers.

    Of edits that touch different activities one may hide what is uncertain of the other from the
    critical path of both; it is no less uncertain for that.
    """
    widened = dict(sigmas)
    for other, other_step in alone:
        for cause, sigma in other.items():
            widened[cause] = max(widened.get(cause, 0.0), sigma * other_step / step)
    return widened


def _measure_moves(
    edited: StepModel, change: NDArray[np.float64], step: int, here: int
) -> tuple[float, float]:
    """Logarithm of the step over the answer, with a change and with its opposite.

    Time that an edit adds to the step as a whole (more micro-batches, a bubble) is made of the
    same activities and moves with them.
    """
    more = np.empty(len(change), np.int64)
    np.rint(change, out=more, casting="unsafe")
    both = periods_beside(edited.graph, edited.weight, more, edited.wrap_weight)
    repeated = here / max(here - max(sum(edited.added.values()), 0), 1)
    plus, minus = (
        math.log(max(step + round((other - here) * repeated * step / here), 1) / step)
        for other in both
    )
    return plus, minus


def suggest_recording(asked: Sequence[tuple[str, str]], of: Mapping[str, float]) -> str:
    """Return the recording that would remove the largest part of the uncertainty."""
    sources = by_source(of)
    if not asked or not sources:
        return ""
    most = max(sources, key=lambda source: sources[source])
    total = math.sqrt(sum(s * s for s in sources.values()))
    remedy = "kernel" if most == "replay" and of.get("structure", 0) > of.get("replay", 0) else most
    stays = _STAYS.get(most, 1 / 3)
    rest = math.sqrt(total**2 - sources[most] ** 2 * (1 - stays**2))
    if rest > _NARROWS * total:
        return ""
    batch = dict(asked).get("batch")
    more = (
        f"run some steps with {' '.join(asked[0])}"
        if batch is None
        else f"record one more run at batch {batch}, and give both (--with)"
    )
    gain = f"one sigma of {100 * total:.1f} % would become about {100 * rest:.1f} %"
    return f"{_RECORDINGS[remedy].format(more=more)}: {gain}"
