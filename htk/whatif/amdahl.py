"""The plausibility of a claimed speedup: what it requires of the part that was made faster.

If a share f of the critical path gets x times faster, the step gets 1 / (1 - f · (1 - 1/x)) times
faster (Amdahl 1967).
"""

import math
from dataclasses import dataclass

_PLAUSIBLE = 1.1  # times the share that was seen: noise, and what goes with it


@dataclass(frozen=True)
class Guard:
    claimed: float
    needed_share: float  # of the critical path
    share: float  # what the trace shows
    at_most: float  # speed-up of the step if the part took no time
    likely: float  # with the part as many times faster as was said

    @property
    def verdict(self) -> str:
        if self.needed_share <= self.share * _PLAUSIBLE and self.claimed <= self.at_most:
            return "plausible"
        if self.claimed <= self.at_most * _PLAUSIBLE:
            return "only if it took next to no time"
        return "not plausible from this part alone"

    @property
    def words(self) -> str:
        return (
            f"a claimed {self.claimed:g}× needs {100 * self.needed_share:.0f} % of the critical "
            f"path; this part holds {100 * self.share:.1f} %, which gives {self.likely:.3f}× and "
            f"no more than {self.at_most:.3f}×: {self.verdict}"
        )


def compute_speedup(share: float, faster: float) -> float:
    """Return the speedup of the whole when `share` of it gets `faster` times faster."""
    kept = 1 - share * (1 - 1 / faster)
    return math.inf if kept <= 0 else 1 / kept


def needed_share(claimed: float, faster: float = math.inf) -> float:
    """Return the share of the critical path that must have got `faster` times faster."""
    return (1 - 1 / claimed) / (1 - 1 / faster) if faster != 1 else math.inf


def build_guard(claimed: float, share: float, faster: float = math.inf) -> Guard:
    return Guard(
        claimed,
        needed_share(claimed, faster),
        share,
        compute_speedup(share, math.inf),
        compute_speedup(share, faster),
    )
