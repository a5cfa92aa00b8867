"""The answer to a what-if: measured + (replay of the edited − replay of the untouched step)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from htk.base.errors import UsageError
from htk.physics.training_job import TrainingJob
from htk.quantities.graph.replay import Replay
from htk.whatif.answer import Answer
from htk.whatif.bound_by import LAUNCH_BOUND, find_host_share, under_a_wave
from htk.whatif.edit_uncertainty import touches_nothing_else
from htk.whatif.edited_job import edited_job
from htk.whatif.edited_step import apply_edits, find_count, find_micro_batch, order_edits
from htk.whatif.guards import find_violation
from htk.whatif.left_out_ranks import check_answered, estimate_left_out_sigma
from htk.whatif.limits import Limits, step_limits, work_limits
from htk.whatif.memory import predict_peak
from htk.whatif.recorded_step import Baseline
from htk.whatif.server_edits import refuse_training_edits
from htk.whatif.step_model import StepModel
from htk.whatif.uncertainty import HOST_RUNS, PROFILER, at_least, sigma_by_cause, suggest_recording
from htk.whatif.waterfall import measure_exposed_and_idle, split_change

INDISTINGUISHABLE = "indistinguishable from none"
_OURS = "unknown to htk: its models do not hold for this, or a step time given is too short"


@dataclass(frozen=True)
class _Outcome:
    """An edited step, replayed, beside the step that was measured."""

    start: Baseline
    asked: tuple[tuple[str, str], ...]
    anchor_ns: int | None  # a step measured without the profiler
    edited: StepModel
    replayed: Replay
    measured_ns: int
    is_bound: bool = False  # of what no kernel can do

    @property
    def job(self) -> TrainingJob:
        return edited_job(self.start.job, self.asked)

    @cached_property
    def change_ns(self) -> int:
        """The edited replay less the untouched one, with what further recordings add."""
        change = self.replayed.period_ns - self.start.replayed.period_ns
        lines = self.start.curves
        if lines is None or self.edited.samples == 1:
            return change
        missed = lines.missed_ns(find_micro_batch(self.start, self.asked))
        return round(change + missed + lines.off_ns(find_count(self.start, self.asked)))

    @property
    def scale(self) -> float:
        """The measured step over the recorded one."""
        return self.measured_ns / self.start.step_ns

    @property
    def step_ns(self) -> int:
        return max(self.measured_ns + round(self.change_ns * self.scale), 1)

    @cached_property
    def host_share(self) -> float:
        """How much of a slowdown of the host the step follows, from 0 to 1."""
        return find_host_share(self.edited, self.replayed.period_ns)

    def guarded(self) -> "_Outcome | str":
        """Return the outcome, or the bound that it passes, in words; a kernel that there cannot be
        may be asked for, to see what it would win."""
        steps = (self.measured_ns, self.step_ns)
        period = self.replayed.period_ns
        guard = find_violation(
            self.start.recorded_load, self.edited, period, steps, self.start.rates
        )
        if guard is None:
            return self
        if "replace" not in dict(self.asked) or "stream" in guard:
            return guard
        return replace(self, edited=replace(self.edited, work=math.nan), is_bound=True)

    def find_sigmas(self) -> Mapping[str, float]:
        """Return one standard deviation of the logarithm of the step, by cause."""
        start = self.start
        edited = self.edited
        here = self.replayed.period_ns
        sigmas = sigma_by_cause(start.gate, edited, self.step_ns, here)
        is_host_measured = self.anchor_ns is not None and start.launch_bound
        host_share = self.host_share
        if host_share > 0 and not is_host_measured:
            sigmas["profiler"] = PROFILER * host_share
        elif host_share > 0 and edited.touched:
            sigmas["host"] = math.hypot(sigmas.get("host", 0.0), HOST_RUNS * host_share)
        if start.left_out is not None:
            sigmas["left_out"] = estimate_left_out_sigma(edited, here)
        separate = [
            e for e in self.asked if e[0] in edited.touched and touches_nothing_else(edited, e[0])
        ]
        if len(edited.touched) < 2 or not separate:
            return sigmas
        answered = [e for e in separate if _is_answered(start, e)]
        return at_least(
            sigmas, self.step_ns, [_predict_alone(start, e, self.anchor_ns) for e in answered]
        )

    def find_limits(self, mfu_pct: float | None, exposed: int | None) -> Limits:
        """Return the least and the most ns that the step can take."""
        start = self.start
        edited = self.edited
        steps = (self.measured_ns, self.step_ns)
        least, most = step_limits(start.model, edited, self.asked, steps, mfu_pct)
        if exposed is None:
            return least, most
        low, high = work_limits(start.job, self.job, edited.touched.keys(), steps[0], exposed)
        return max(least, low), min(most, high)

    def answer(self, sigmas: Mapping[str, float]) -> Answer:
        start, edited, replayed, step = self.start, self.edited, self.replayed, self.step_ns
        each = edited.samples / edited.devices
        held, served = start.memory, edited.served or start.served
        exposed, idle = (
            (None, None) if start.left_out else measure_exposed_and_idle(edited, replayed, step)
        )
        mfu_pct = None
        if not math.isnan(edited.work):
            mfu_pct = start.rates.mfu_pct(each * edited.work / edited.peak, step)
        before_ns, here = start.replayed.period_ns, replayed.period_ns
        within = 2 * start.gate.residual_pct / 100 * start.step_ns
        verdict = start.gate.verdict
        if 0 < abs(self.change_ns) <= within:
            verdict = f"{verdict}; the change is {INDISTINGUISHABLE}"
        trained = start.rates.tokens_per_s(edited.samples, step)
        peak = None if held is None else predict_peak(held, self.job, edited.activation_scale)
        tokens_per_s = served.tokens_per_s(step) if served else trained
        generated_per_s = served.generated_per_s(step) if served else None
        tpot_ns = served.tpot_ns(step) if served else None
        return Answer(
            edits=self.asked,
            measured_ns=self.measured_ns,
            verdict=verdict,
            step_ns=step,
            sigma_by_cause=sigmas,
            exposed_ns=exposed,
            idle_ns=idle,
            tokens_per_s=tokens_per_s,
            generated_per_s=generated_per_s,
            tpot_ns=tpot_ns,
            mfu_pct=mfu_pct,
            limits=self.find_limits(mfu_pct, exposed),
            is_bound=self.is_bound,
            peak=peak,
            gpus=start.rates.gpus * edited.devices,
            watts=start.rates.watts,
            effective=tuple(edited.touched),
            samples_ratio=edited.samples,
            devices_ratio=edited.devices,
            launch_bound=self.host_share > LAUNCH_BOUND,
            under_a_wave=under_a_wave(edited, each),
            waterfall=split_change(edited, before_ns, self.change_ns, self.scale, here),
            assumptions=(*edited.assumptions, *(peak.words if peak else ())),
            narrow=suggest_recording(self.asked, sigmas),
        )


def predict_answer(
    start: Baseline, edits: Sequence[tuple[str, str]], measured_ns: int | None = None
) -> Answer:
    """Edit the step, replay it, scale the change to the measured step, guard what comes out, and
    say how sure that is."""
    asked = order_edits(edits)
    measured = start.step_ns if measured_ns is None else measured_ns
    check_asked(start, asked, measured)
    if start.refused:
        return refuse_answer(start, asked, measured)
    start = start.match_measured_step(measured)
    edited, replayed = apply_edits(start, asked)
    outcome = _Outcome(start, asked, measured_ns, edited, replayed, measured).guarded()
    if isinstance(outcome, str):
        return replace(
            refuse_answer(start, asked, measured), verdict=f"refused: {outcome}; {_OURS}"
        )
    return outcome.answer(outcome.find_sigmas())


def check_asked(start: Baseline, asked: tuple[tuple[str, str], ...], measured: int) -> None:
    """Raise UsageError where a recording or a measured step cannot be of these edits."""
    if measured <= 0:
        raise UsageError("the measured step must be longer than 0")
    if start.left_out is not None:
        check_answered(asked)
    if start.served is not None and not start.refused:
        refuse_training_edits(asked)


def _is_answered(start: Baseline, asked: tuple[str, str]) -> bool:
    """Return whether an edit makes a job by itself: sequence parallelism needs another one."""
    try:
        edited_job(start.job, [asked])
    except UsageError:
        return False
    return True


def _predict_alone(
    start: Baseline, asked: tuple[str, str], measured_ns: int | None
) -> tuple[Mapping[str, float], int]:
    """Return the uncertainty and the step of one edit alone, reckoned once for a sweep."""
    key = (*asked, measured_ns)
    if key not in start.alone:
        answer = predict_answer(start, [asked], measured_ns)
        start.alone[key] = (answer.sigma_by_cause, answer.step_ns or 1)
    return start.alone[key]


def refuse_answer(start: Baseline, asked: tuple[tuple[str, str], ...], measured: int) -> Answer:
    return Answer(asked, measured, start.gate.verdict)
