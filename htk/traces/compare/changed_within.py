"""What changed in the middle of one of the two recordings: its mean is then of two things."""

import numpy as np

from htk.base.core.humanize import shorten
from htk.quantities.measures.chance import shared
from htk.quantities.measures.change_points import LEAST_STEPS, shifts
from htk.traces.compare.baseline import RecordedBaseline

FALSE_ALARMS = 0.01
_LEAST_PCT = 1.0
_MOST = 3  # are named


def changed_within(side: RecordedBaseline, word: str) -> list[str]:
    """Say which kernels, or the step, shift at which step of this recording."""
    things = {f"kernel {name}": s for name, s in side.kinds.get("kernel", {}).items()}
    if "total" in (time := side.kinds.get("time", {})):
        things["the step"] = time["total"]
    things = {name: s for name, s in things.items() if (s.by_step > 0).all()}
    numbered = len(side.numbers) == side.steps >= LEAST_STEPS  # a file of a baseline has no numbers
    if not things or not numbered:
        return []
    shift = shifts(np.array([s.by_step for s in things.values()]))
    falls, level = shared(shift.p, FALSE_ALARMS)
    share = 100 * (shift.after - shift.before) / shift.before
    rows = np.flatnonzero(falls & (np.abs(share) >= _LEAST_PCT))
    rows = rows[np.argsort(-np.abs(shift.after - shift.before)[rows], kind="stable")]
    names = list(things)
    return [
        f"within the {word}, {shorten(names[k], 60)} is {share[k]:+.1f} % from step "
        f"{side.numbers[int(shift.split[k])]} on (confidence "
        f"{min(100 - 100 * shift.p[k] * FALSE_ALARMS / level[k], 99.9):.3g} %)"
        for k in rows[:_MOST].tolist()
    ]
