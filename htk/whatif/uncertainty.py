"""How sure an answer is: the band by cause, and the recording that would narrow it most.

Each cause of doubt is replayed twice, changed by more and by less than was said; a bootstrap that
draws all causes anew gives the same band (`bench/whatif.py`).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from htk.graph.fidelity import Gate
from htk.graph.replay import NEVER, replay
from htk.whatif.step_model import CATEGORIES, StepModel

SITE = 0.0033  # spread of one system with itself: MLPerf v4.0, Llama-2-70B LoRA
# What the profiler adds to a step that its host bounds: 350 ns to 1 µs an event, of calls and
# operators that take some 10 µs. The step as it takes without the profiler leaves no such doubt.
PROFILER = 0.05
_INDICATIVE = 2.0  # times wider
_LOW_CONFIDENCE = 1.5
# Gauss and Hermite's points for the variance of a function of a normal variable: 0 and ±√3, which
# weigh 2/3 and 1/6; a kink that one sigma does not reach (communication comes to light) is seen.
_FAR = math.sqrt(3)

# Where a doubt comes from, by the cause that an edit names.
_SOURCES = {
    "compute": "kernel",
    "memory": "kernel",
    "host": "kernel",
    "communication": "network",
    "skew": "skew",
    "site": "site",
    "profiler": "profiler",
}
# What is recorded is not known exactly either: so much of its doubt is taken to stay.
_STAYS = {"site": 1.0, "profiler": 0.0}
_NARROWS = 0.95  # of the doubt: what leaves more is not worth a recording
_RECORDINGS = {
    "profiler": "time some steps without the profiler and give that (--measured-step-ms)",
    "replay": "record three or more whole steps with event synchronisation enabled",
    "kernel": "{more}",
    "network": "{more}, or measure collectives with nccl-tests",
    "skew": "record every rank of the job",
    "site": "repeat the recording; what is left is how much one job varies from run to run",
}


def by_source(spread: Mapping[str, float]) -> dict[str, float]:
    """replay, kernel, network, skew, site, profiler: independent, so their squares add."""
    found: dict[str, float] = {}
    for cause, sigma in spread.items():
        source = _SOURCES.get(cause, "replay")
        found[source] = math.hypot(found.get(source, 0.0), sigma)
    return found


def with_uncertainty(edited: StepModel) -> dict[str, NDArray[np.float64]]:
    """What one sigma of each cause changes the weights by; the graph's own are the untouched."""
    found = {}
    for cause, sigma in edited.spread.items():
        if cause in CATEGORIES:
            mine = edited.categories == CATEGORIES.index(cause)
            kept = mine & (edited.weight > NEVER)
            found[cause] = np.where(kept, edited.weight - edited.graph.weight, 0) * sigma
    return found


def sigma_by_cause(gate: Gate, edited: StepModel, step: int, here: int) -> dict[str, float]:
    """One sigma of the logarithm of the step, by cause. `here`: the replayed step."""
    wide = 1.0 if gate.verdict == "trusted" else _INDICATIVE
    wide *= _LOW_CONFIDENCE if edited.low_confidence else 1.0
    found = {"replay": wide * gate.residual_pct / 100, "site": SITE}
    found |= {c: wide * s for c, s in edited.spread.items() if c not in CATEGORIES}
    for cause, change in with_uncertainty(edited).items():
        both = [_moved(edited, far * change, step, here) for far in (_FAR, -_FAR)]
        found[cause] = wide * math.hypot(*both) / math.sqrt(6)
    return found


def _moved(edited: StepModel, change: NDArray[np.float64], step: int, here: int) -> float:
    """Logarithm of the step over the answer."""
    weight = edited.weight + np.rint(change).astype(np.int64)
    other = replay(edited.graph, weight, edited.wrap_weight).period_ns
    return math.log(max(step + round((other - here) * step / here), 1) / step)


def narrowing(asked: Sequence[tuple[str, str]], of: Mapping[str, float]) -> str:
    """The recording that would take away the largest part of the doubt."""
    sources = by_source(of)
    if not asked or not sources:
        return ""
    most = max(sources, key=lambda source: sources[source])
    whole = math.sqrt(sum(s * s for s in sources.values()))
    remedy = "kernel" if most == "replay" and of.get("structure", 0) > of.get("replay", 0) else most
    stays = _STAYS.get(most, 1 / 3)
    rest = math.sqrt(whole**2 - sources[most] ** 2 * (1 - stays**2))
    if rest > _NARROWS * whole:
        return ""
    batch = dict(asked).get("batch")
    more = (
        f"run some steps with {' '.join(asked[0])}"
        if batch is None
        else f"record one more run at batch {batch}, and give both (--with)"
    )
    gain = f"one sigma of {100 * whole:.1f} % would become about {100 * rest:.1f} %"
    return f"{_RECORDINGS[remedy].format(more=more)}: {gain}"
