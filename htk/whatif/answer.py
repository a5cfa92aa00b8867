"""What is predicted of a step after some edits, and how far that can be relied on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from htk.whatif.calibration import describe_record, edit_intervals, find_calibration, state_sigma
from htk.whatif.edit_uncertainty import sum_sigmas
from htk.whatif.memory import PredictedPeak
from htk.whatif.uncertainty import by_source

_FAR = 16  # times the recorded samples of a GPU, or ranks: how far predictions were tested


@dataclass(frozen=True)
class Answer:
    edits: tuple[tuple[str, str], ...]
    measured_ns: int
    verdict: str
    step_ns: int | None = None
    sigma_by_cause: Mapping[str, float] = field(
        default_factory=dict
    )  # of log step, one sigma, by cause
    exposed_ns: int | None = None
    idle_ns: int | None = None
    tokens_per_s: float | None = None
    generated_per_s: float | None = None  # of a server: tokens given to requests
    tpot_ns: float | None = None  # of a server
    mfu_pct: float | None = None
    peak: PredictedPeak | None = None
    gpus: float = 1.0
    watts: float | None = None  # a GPU's limit
    effective: tuple[str, ...] | None = None  # edits that change something; None: all
    samples_ratio: float = 1.0
    devices_ratio: float = 1.0
    launch_bound: bool = False
    under_a_wave: bool = False
    waterfall: Mapping[str, int] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    narrow: str = ""
    mark: str = ""
    limits: tuple[float, float] = (0.0, math.inf)  # ns that no step after these edits can pass
    is_bound: bool = False  # of what no kernel can do

    @property
    def p_oom(self) -> float | None:
        """The probability of running out of memory; None: not known."""
        return None if self.peak is None else self.peak.p_oom

    @property
    def each(self) -> float:
        """The samples per GPU, over the recorded ones."""
        return self.samples_ratio / self.devices_ratio

    @property
    def sigma(self) -> float:
        return sum_sigmas(self.sigma_by_cause)

    @property
    def sources(self) -> dict[str, float]:
        """The uncertainty by source: one standard deviation, relative to the step."""
        return by_source(self.sigma_by_cause)

    @property
    def gain_over_sigma(self) -> float | None:
        if self.step_ns is None or not self.sigma:
            return None
        return -math.log(self.step_ns / self.measured_ns / self.each) / self.sigma

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the edits that change something."""
        return tuple(n for n, _ in self.edits) if self.effective is None else self.effective

    def interval(self, z: float) -> tuple[int | None, int | None]:
        if self.step_ns is None:
            return None, None
        wide = math.exp(z * state_sigma(self.sigma, self.names))
        least, most = self.limits
        low = max(self.step_ns / wide, min(least, self.step_ns))
        high = min(self.step_ns * wide, max(most, self.step_ns))
        return round(low), round(high)

    @property
    def intervals(self) -> tuple[int | None, int | None, int | None, int | None]:
        """lo50, hi50, lo90, hi90: the 50 % and 90 % prediction intervals, in ns, calibrated on
        predictions of this kind."""
        half, most = find_calibration(self.names)
        return (*self.interval(half), *self.interval(most))

    @property
    def intervals_held(self) -> str:
        """How often 90 % intervals of the edits' kind held, in words."""
        return "" if self.step_ns is None else describe_record(self.names)

    @property
    def standing(self) -> str:
        """How well answers of this kind are tested, whatever the replay's verdict says."""
        if self.step_ns is None:
            return ""
        if not self.names:
            return "as recorded"
        if self.is_bound:
            return "a bound: no kernel of this GPU is as fast"
        ratios = (self.each, self.devices_ratio)
        if max(abs(math.log(ratio)) for ratio in ratios if ratio > 0) > math.log(_FAR):
            return "outside what was tested"
        unmeasured = [kind.edit for kind in edit_intervals(self.names) if not kind.measured.n]
        if unmeasured:
            return f"indicative: no measured job tells of {', '.join(unmeasured)}"
        wide = self.intervals[3] or self.step_ns
        return f"tested: within {100 * (wide / self.step_ns - 1):.0f} % in nine of ten"
