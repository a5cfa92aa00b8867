"""Whether the replay of a job is faithful: compared with what was recorded, as every replay is.

With its launch delays a step must replay as it was recorded: where an operation started before
what it is said to wait for, it replays late. What launch delays make up of a step is told apart:
the host was late, or something was not logged.
"""

from dataclasses import dataclass

import numpy as np

from htk.quantities.graph.gate import INDICATIVE_STEP_PCT, START_PCT, STEP_PCT
from htk.quantities.straggler.job import Job

INDICATIVE_HELD_OUT_PCT = 10.0


@dataclass(frozen=True)
class Fidelity:
    """How far the replay with launch delays is from the recording."""

    step_error_pct: float  # mean step time
    held_out_error_pct: float | None  # of steps that the program was not worked out from; None: one
    end_error_pct: float  # 90th percentile over operations, of the step
    launch_delay_pct: float  # of the recorded step: what the replay without them lacks

    @property
    def failures(self) -> list[str]:
        held_out = self.held_out_error_pct or 0.0
        tests = (
            (self.step_error_pct <= STEP_PCT, f"steps replay {self.step_error_pct:.1f} % off"),
            (held_out <= STEP_PCT, f"other steps are predicted {held_out:.1f} % off"),
            (
                self.end_error_pct <= START_PCT,
                f"operations end {self.end_error_pct:.1f} % of the step off",
            ),
            (
                self.launch_delay_pct <= INDICATIVE_STEP_PCT,
                f"{self.launch_delay_pct:.0f} % of the step is launch delay: the host was late, or "
                "not all operations were logged",
            ),
            (self.held_out_error_pct is not None, "only one step was recorded"),
        )
        return [text for held, text in tests if not held]

    @property
    def verdict(self) -> str:
        if not self.failures:
            return "trusted"
        held = self.held_out_error_pct or 0.0
        close = self.step_error_pct <= INDICATIVE_STEP_PCT and held <= INDICATIVE_HELD_OUT_PCT
        return ("indicative: " if close else "refused: ") + "; ".join(self.failures)

    @property
    def figures(self) -> dict[str, object]:
        held = self.held_out_error_pct
        return {
            "verdict": self.verdict,
            "step_error_pct": round(self.step_error_pct, 3),
            "held_out_error_pct": None if held is None else round(held, 3),
            "end_error_pct": round(self.end_error_pct, 3),
            "launch_delay_pct": round(self.launch_delay_pct, 3),
        }


def measure_fidelity(job: Job) -> Fidelity:
    """Compare every step, replayed with its launch delays, with what was recorded."""
    recorded = job.recorded
    delayed = np.concatenate([each.delayed for each in job.overviews])
    off = 100 * np.abs(delayed - recorded) / np.maximum(recorded, 1)
    first = np.cumsum([0, *(len(each.steps) for each in job.overviews)])[:-1]
    others = np.delete(off, first)  # the first step of each block told its program
    held_out_error_pct = float(others.mean()) if len(others) else None
    return Fidelity(
        float(off.mean()),
        held_out_error_pct,
        max(each.end_error_pct for each in job.overviews),
        float(100 * (1 - job.replayed.mean() / max(recorded.mean(), 1))),
    )
