"""Time of a transfer as latency plus bytes over bandwidth: t = α + W / β.

W is what bus bandwidth counts (size × factor), so β is a bus bandwidth. Least squares on relative
error (weights 1/t²), α and 1/β not negative. Protocols change with size, so a curve may have up to
three pieces; a piece is added only where it pays, and time never falls from one to the next.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats

_LEAST_POINTS = 3  # of a piece
_PAYS = 0.7  # another piece must bring the squared error below this share
_GOOD = 0.02  # a relative error that needs no further piece
_MOST_POINTS = 60


@dataclass(frozen=True)
class Segment:
    """A piece of the curve, for W between its bounds."""

    low_bytes: float
    high_bytes: float
    points: int
    latency_us: float
    us_per_byte: float
    residual: float  # root mean square of the relative error
    worst: float

    @property
    def bandwidth_gbps(self) -> float | None:
        return 1e-3 / self.us_per_byte if self.us_per_byte > 0 else None

    @property
    def tells_latency(self) -> bool:
        """Whether there were several sizes: one alone cannot part latency from bandwidth."""
        return self.high_bytes > self.low_bytes

    @property
    def half_bytes(self) -> float | None:
        """W at which half the bandwidth is reached (None: not told)."""
        has_half = self.tells_latency and self.us_per_byte > 0
        return self.latency_us / self.us_per_byte if has_half else None

    def time_us(self, moved_bytes: float) -> float:
        return self.latency_us + moved_bytes * self.us_per_byte


def fit_segments(moved_bytes: Floats, time_us: Floats, pieces: int = 3) -> list[Segment]:
    """Return the curve through points of positive bytes and time."""
    good = (moved_bytes > 0) & (time_us > 0)
    order = order_by(moved_bytes[good])
    work = moved_bytes[good][order]
    time = time_us[good][order]
    if not len(work):
        return []
    best = [_fit_segment(work, time)]
    for count in range(2, pieces + 1):
        if _sum_residuals(best) <= _GOOD**2 * len(work):
            break
        candidate = _find_best_split(work, time, count)
        if candidate is None or _sum_residuals(candidate) > _PAYS * _sum_residuals(best):
            break
        best = candidate
    return best


def predicted_us(curve: list[Segment], moved_bytes: float) -> float:
    """Time of a transfer by the piece that its size falls in."""
    inside = next((s for s in curve if moved_bytes <= s.high_bytes), curve[-1])
    return inside.time_us(moved_bytes)


def _sum_residuals(segments: list[Segment]) -> float:
    return sum(s.residual**2 * s.points for s in segments)


def _find_best_split(work: Floats, time: Floats, count: int) -> list[Segment] | None:
    """The best way to cut the points into so many pieces, tried at every size (there are few)."""
    sizes = np.unique(work)
    if len(sizes) > _MOST_POINTS:
        sizes = np.unique(np.quantile(sizes, np.linspace(0, 1, _MOST_POINTS)))
    cuts = np.searchsorted(work, sizes[1:])
    best: list[Segment] | None = None
    fitted: dict[tuple[int, int], Segment] = {}
    for chosen in combinations(cuts.tolist(), count - 1):
        edges = [0, *chosen, len(work)]
        spans = list(pairwise(edges))
        if any(b - a < _LEAST_POINTS or work[a] == work[b - 1] for a, b in spans):
            continue
        for a, b in spans:
            if (a, b) not in fitted:
                fitted[a, b] = _fit_segment(work[a:b], time[a:b])
        segments = [fitted[span] for span in spans]
        if _is_rising(segments) and (
            best is None or _sum_residuals(segments) < _sum_residuals(best)
        ):
            best = segments
    return best


def _is_rising(segments: list[Segment]) -> bool:
    """Time does not fall where a piece ends and the next begins."""
    return all(a.time_us(a.high_bytes) <= b.time_us(b.low_bytes) for a, b in pairwise(segments))


def _fit_segment(work: Floats, time: Floats) -> Segment:
    # t = α + W·s, divided by t: 1 = α/t + s·W/t
    scale = 1 / time
    ratio = work / time
    ones = np.ones(len(work))
    if len(np.unique(work)) < 2:
        latency = 0.0
        slope = float((ratio @ ones) / (ratio @ ratio))
    else:
        system = np.array([[scale @ scale, scale @ ratio], [scale @ ratio, ratio @ ratio]])
        latency, slope = np.linalg.solve(system, np.array([scale @ ones, ratio @ ones])).tolist()
        if latency < 0:
            latency = 0.0
            slope = float((ratio @ ones) / (ratio @ ratio))
        elif slope < 0:
            latency = float((scale @ ones) / (scale @ scale))
            slope = 0.0
    off = (latency + work * slope) / time - 1
    return Segment(
        float(work[0]),
        float(work[-1]),
        len(work),
        latency,
        slope,
        float(np.sqrt(np.mean(off**2))),
        float(np.abs(off).max()),
    )
