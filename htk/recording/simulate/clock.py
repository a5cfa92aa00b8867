"""A rank's own clock, as its trace file tells it."""

import numpy as np

from htk.base.columns.types import Ints
from htk.recording.simulate.config import Config
from htk.recording.simulate.plants import Plants

# The profiler counts from a multiple of 7,889,238 s; the job begins some days later.
BASE_NS = 226 * 7_889_238 * 10**9
BEGIN_NS = BASE_NS + 271_828 * 10**9


class Clocks:
    """Offset and drift of each rank."""

    def __init__(self, config: Config) -> None:
        plants = Plants(config)
        self._offset = [plants.offset_ns(rank) for rank in range(config.ranks)]
        self._drift = [plants.drift_ppm(rank) for rank in range(config.ranks)]

    def local(self, rank: int, true_ns: Ints) -> Ints:
        """Epoch ns by that rank's clock; -1 stays."""
        drift = np.rint(true_ns * (self._drift[rank] * 1e-6)).astype(np.int64)
        return np.where(true_ns < 0, -1, BEGIN_NS + self._offset[rank] + true_ns + drift)

    def offset_ns(self, rank: int) -> int:
        return self._offset[rank]

    def drift_ppm(self, rank: int) -> float:
        return self._drift[rank]
