"""Answers of what-ifs as a prediction would give them."""

from collections.abc import Mapping
from typing import Any

from htk.whatif.answer import Answer
from htk.whatif.memory import PredictedPeak


def peak(p_oom: float) -> PredictedPeak:
    """Return a peak that runs out of memory so often."""
    return PredictedPeak(1.0, 1.0, p_oom, 0.1)


def answer(batch: float, p_oom: float | None = None, **more: Any) -> Answer:
    spread: Mapping[str, float] = {"replay": 0.01}
    return Answer(
        (("batch", f"{batch:g}x"),),
        100,
        "trusted",
        step_ns=round(100 * batch**0.9),
        sigma_by_cause=spread,
        samples_ratio=batch,
        peak=None if p_oom is None else peak(p_oom),
        **more,
    )
