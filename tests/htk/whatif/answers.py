"""Answers of what-ifs as a prediction would give them."""

from collections.abc import Mapping
from typing import Any

from htk.whatif.answer import Answer


def answer(batch: float, **more: Any) -> Answer:
    spread: Mapping[str, float] = {"replay": 0.01}
    return Answer(
        (("batch", f"{batch:g}x"),),
        100,
        "trusted",
        step_ns=round(100 * batch**0.9),
        sigma_by_cause=spread,
        samples_ratio=batch,
        **more,
    )
