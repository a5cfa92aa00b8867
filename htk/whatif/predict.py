"""The answer to a what-if: measured + (replay of the edited − replay of the untouched step)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.core.humanize import format_duration
from htk.base.errors import UsageError
from htk.physics.site_rates import NO_SITE, SiteByGpu
from htk.physics.training_job import TrainingJob
from htk.quantities.graph.build import Graph
from htk.quantities.graph.fidelity import gated
from htk.quantities.graph.gate import UNMARKED, Gate
from htk.quantities.graph.left_out import LeftOut, left_out_of
from htk.quantities.graph.replay import Replay, replay
from htk.whatif.answer import Answer
from htk.whatif.bound_by import find_host_share, launch_bound, under_a_wave
from htk.whatif.contention import factor, settled, share
from htk.whatif.curves import Curves, Recorded, counted, curves, fitted
from htk.whatif.edit_uncertainty import accumulated_together, apart, distance
from htk.whatif.edited_job import edited_job, with_own_batch
from htk.whatif.edits import EDITS, REPEATABLE, edit
from htk.whatif.edits.sharding import strategy
from htk.whatif.from_one_rank import placed
from htk.whatif.guards import RecordedLoad, violated
from htk.whatif.kept_memory import KeptMemory
from htk.whatif.left_out_ranks import check_answered, follow, uncertainty
from htk.whatif.limits import step_limits
from htk.whatif.measured_host import match_measured_step
from htk.whatif.memory import Held, after
from htk.whatif.missing_ranks import late, prompt, waits
from htk.whatif.rates import Rates, rates
from htk.whatif.recorded_job import recorded_job
from htk.whatif.recorded_memory import held
from htk.whatif.served_iteration import ServedIteration, of_server, refuse_captures
from htk.whatif.server_edits import refuse_training_edits
from htk.whatif.step_model import StepModel, step_model
from htk.whatif.uncertainty import HOST_RUNS, PROFILER, at_least, narrowing, sigma_by_cause
from htk.whatif.unrecorded_waits import without_unrecorded_waits
from htk.whatif.waterfall import parts, waterfall

INDISTINGUISHABLE = "indistinguishable from none"
_OURS = "unknown to htk: its models do not hold for this, or a step time given is too short"


@dataclass(frozen=True)
class Baseline:
    """The recorded step that every answer of one trace starts from."""

    tables: Mapping[str, pa.Table]
    model: StepModel
    replayed: Replay
    gate: Gate
    curves: Curves | None = None  # from further recordings at other batches
    unrecorded_ns: int = 0  # of a server's recording: waits for what was not recorded, left out
    kept: KeptMemory | None = field(default=None, repr=False, compare=False)
    at_measured_pace: bool = False  # its host is as fast as a step without the profiler tells

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @cached_property
    def contention(self) -> float:
        """The relative slowdown of compute beside communication; 0: none."""
        return factor(self.model)

    @cached_property
    def concurrent_share(self) -> NDArray[np.float64]:
        """The share of each kernel's time with communication beside it."""
        return share(self.model, self.replayed.time)

    @cached_property
    def waits(self) -> NDArray[np.float64]:
        """The time each collective waited for unrecorded ranks, in ns."""
        return waits(self.model)

    @cached_property
    def alone(self) -> dict[tuple[str, str, int | None], tuple[Mapping[str, float], int]]:
        """The uncertainty and step of single edits already answered, by edit and anchor."""
        return {}

    @cached_property
    def by_measured_step(self) -> dict[int, "Baseline"]:
        """The baselines whose host is as fast as a measured step tells, by that step in ns."""
        return {}

    def match_measured_step(self, measured_ns: int) -> "Baseline":
        """Return the baseline with a host as fast as without the profiler."""
        if measured_ns not in self.by_measured_step:
            model = match_measured_step(self.model, self.replayed.period_ns, measured_ns)
            matched = self
            if model is not self.model:
                replayed = replay(model.graph, model.weight, model.wrap_weight)
                matched = replace(self, model=model, replayed=replayed, at_measured_pace=True)
            self.by_measured_step[measured_ns] = matched
        return self.by_measured_step[measured_ns]

    @cached_property
    def memory_edges(self) -> dict[tuple[tuple[str, str], ...], str | None]:
        """The largest batches that fit, by the edits beside the batch."""
        return {}

    @cached_property
    def job(self) -> TrainingJob:
        """The recorded job, as far as it shows itself."""
        return recorded_job(self.model)

    @cached_property
    def memory(self) -> Held | None:
        """What a training step holds; None: not known, or a server's iteration."""
        return None if self.served is not None else held(self.tables, self.model)

    @cached_property
    def left_out(self) -> LeftOut | None:
        """The ranks for which some stand; None: all that were recorded are in the graph."""
        return left_out_of(self.tables)

    @cached_property
    def rates(self) -> Rates:
        return rates(self.tables, self.model)

    @cached_property
    def recorded_load(self) -> RecordedLoad:
        return RecordedLoad(self.model, self.replayed.period_ns)

    @cached_property
    def launch_bound(self) -> bool:
        """Whether the recorded step is as long as its host takes, which the profiler slows down."""
        return launch_bound(self.model, self.replayed.period_ns)

    @cached_property
    def served(self) -> ServedIteration | None:
        """The iteration, where the recording is of an inference server."""
        return of_server(self.tables, self.model.replayed_rows)

    @property
    def step_ns(self) -> int:
        """The duration of the recorded step, in ns; of one recorded alone, or whose host was made
        faster, its replayed period."""
        is_replayed = self.graph.is_lone or self.at_measured_pace
        return self.replayed.period_ns if is_replayed else self.graph.period_ns

    @property
    def refused(self) -> bool:
        return self.gate.verdict.startswith("refused")


def baseline(
    tables: Mapping[str, pa.Table],
    others: Sequence[tuple[Mapping[str, pa.Table], float | None]] = (),
    site: SiteByGpu = NO_SITE,
) -> Baseline:
    """Return the recorded step that answers start from.

    `others`: recordings of the same job at other batches, with those where known; `site`: rates
    that the site measured of its GPUs.
    """
    refuse_captures(tables["annotations"])
    kept = KeptMemory(tables["kernels"].num_rows)
    tables, unrecorded_ns = without_unrecorded_waits(tables)
    graph, replayed, judged = gated(tables)
    if of_server(tables) is not None:
        remarks = tuple(remark for remark in judged.remarks if remark != UNMARKED)
        judged = replace(judged, remarks=remarks)
    if unrecorded_ns:
        remark = f"{format_duration(unrecorded_ns)} of waiting for unrecorded work are left out"
        judged = replace(judged, remarks=(*judged.remarks, remark))
    model = step_model(tables, graph, site)
    start = Baseline(tables, model, replayed, judged, None, unrecorded_ns, kept)
    if not others or start.refused:
        return start
    return _calibrated(replace(start, curves=curves(start.model, start.contention, others)))


def _calibrated(start: Baseline) -> Baseline:
    """Return the baseline with how much the fitted step misses of each recorded one."""
    assert start.curves is not None
    off = {recording.count: _off(start, recording) for recording in start.curves.counted}
    start = replace(start, curves=replace(start.curves, off=off))
    assert start.curves is not None
    missed = {
        recording.ratio: _off(start, recording) - start.curves.off_ns(recording.count)
        for recording in start.curves.recorded
    }
    return replace(start, curves=replace(start.curves, missed=missed))


def _off(start: Baseline, recording: Recorded) -> float:
    """Return the step time of a recording less the prediction for its batch and number of
    micro-batches, in ns."""
    both = (("batch", recording.ratio), ("accumulation", recording.count))
    _, replayed = apply_edits(start, tuple((n, f"{times:.9f}x") for n, times in both if times != 1))
    change = replayed.period_ns - start.replayed.period_ns
    return float(recording.period_ns - start.step_ns - change)


def _missed_ns(start: Baseline, lines: Curves, asked: Sequence[tuple[str, str]]) -> float:
    """Return what further recordings add to a prediction, in ns."""
    return lines.missed_ns(_micro_batch(start, asked)) + lines.off_ns(_count(start, asked))


def ordered(edits: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the edits in the order in which they are applied, with strategies by htk's names."""
    names = [e.NAME for e in EDITS]
    for name, _ in edits:
        edit(name)
    check_once([name for name, _ in edits])
    by_our_names = [(n, strategy(v) if n == "sharding" else v) for n, v in edits]
    return tuple(sorted(by_our_names, key=lambda pair: names.index(pair[0])))


def check_once(names: Sequence[str]) -> None:
    """Refuse an edit that is asked for twice: the second would overrule the first."""
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and name not in REPEATABLE:
            raise UsageError(f"{name} is given {names.count(name)} times; give it once")


def predict(
    start: Baseline, edits: Sequence[tuple[str, str]], measured_ns: int | None = None
) -> Answer:
    """Apply the edits in the order of their list, replay, and say how sure that is."""
    asked = ordered(edits)
    measured = start.step_ns if measured_ns is None else measured_ns
    if measured <= 0:
        raise UsageError("the measured step must be longer than 0")
    if start.left_out is not None:
        check_answered(asked)
    if start.refused:
        return refused(start, asked, measured)
    if start.served is not None:
        refuse_training_edits(asked)
    start = start.match_measured_step(measured)
    job = edited_job(start.job, asked)
    edited, replayed = apply_edits(start, asked)
    here = replayed.period_ns
    if start.curves is not None and edited.samples != 1:
        here = round(here + _missed_ns(start, start.curves, asked))
    change = here - start.replayed.period_ns
    step = max(measured + round(change * measured / start.step_ns), 1)
    guard = violated(start.recorded_load, edited, replayed.period_ns, (measured, step), start.rates)
    is_bound = guard is not None and "replace" in dict(asked) and "stream" not in guard
    if is_bound:  # the user asks what a kernel would win that there cannot be
        edited = replace(edited, work=math.nan)
    if guard is not None and not is_bound:
        return replace(refused(start, asked, measured), verdict=f"refused: {guard}; {_OURS}")
    sigmas = _sigmas(start, edited, step, replayed.period_ns, measured_ns)
    separate = [e for e in asked if e[0] in edited.touched and apart(edited, e[0])]
    if len(edited.touched) > 1 and separate:
        alone = [_alone(start, e, measured_ns) for e in separate if _is_answered(start, e)]
        sigmas = at_least(sigmas, step, alone)
    each = edited.samples / edited.devices
    recorded_memory = start.memory
    peak = None if recorded_memory is None else after(recorded_memory, job, edited.activation_scale)
    exposed_ns, idle_ns = (None, None) if start.left_out else parts(edited, replayed, step)
    served = edited.served or start.served
    rate = None if math.isnan(edited.work) else each * edited.work / edited.peak
    mfu_pct = None if rate is None else start.rates.mfu_pct(rate, step)
    return Answer(
        edits=asked,
        measured_ns=measured,
        verdict=_verdict(start, change),
        step_ns=step,
        sigma_by_cause=sigmas,
        exposed_ns=exposed_ns,
        idle_ns=idle_ns,
        tokens_per_s=served.tokens_per_s(step)
        if served
        else start.rates.tokens_per_s(edited.samples, step),
        generated_per_s=served.generated_per_s(step) if served else None,
        tpot_ns=served.tpot_ns(step) if served else None,
        mfu_pct=mfu_pct,
        limits=step_limits(start.model, edited, asked, (measured, step), mfu_pct),
        is_bound=is_bound,
        peak=peak,
        gpus=start.rates.gpus * edited.devices,
        watts=start.rates.watts,
        effective=tuple(edited.touched),
        samples_ratio=edited.samples,
        devices_ratio=edited.devices,
        launch_bound=launch_bound(edited, replayed.period_ns),
        under_a_wave=under_a_wave(edited, each),
        waterfall=waterfall(
            edited,
            start.replayed.period_ns,
            change,
            measured / start.step_ns,
            replayed.period_ns,
        ),
        assumptions=edited.assumptions,
        narrow=narrowing(asked, sigmas),
    )


def _sigmas(
    start: Baseline, edited: StepModel, step: int, here: int, measured_ns: int | None
) -> dict[str, float]:
    """Return one standard deviation of the logarithm of the step, by cause."""
    sigmas = sigma_by_cause(start.gate, edited, step, here)
    is_host_measured = measured_ns is not None and start.launch_bound
    host_share = find_host_share(edited, here)
    if host_share > 0 and not is_host_measured:
        sigmas["profiler"] = PROFILER * host_share
    elif host_share > 0 and edited.touched:
        sigmas["host"] = math.hypot(sigmas.get("host", 0.0), HOST_RUNS * host_share)
    if start.left_out is not None:
        sigmas["left_out"] = uncertainty(edited, here)
    return sigmas


def _is_answered(start: Baseline, asked: tuple[str, str]) -> bool:
    """Return whether an edit makes a job by itself: sequence parallelism needs another one."""
    try:
        edited_job(start.job, [asked])
    except UsageError:
        return False
    return True


def _alone(
    start: Baseline, asked: tuple[str, str], measured_ns: int | None
) -> tuple[Mapping[str, float], int]:
    """Return the uncertainty and the step of one edit alone, reckoned once for a sweep."""
    key = (*asked, measured_ns)
    if key not in start.alone:
        answer = predict(start, [asked], measured_ns)
        start.alone[key] = (answer.sigma_by_cause, answer.step_ns or 1)
    return start.alone[key]


def apply_edits(start: Baseline, asked: Sequence[tuple[str, str]]) -> tuple[StepModel, Replay]:
    """Return the step after the edits, which are in their order, and its replay."""
    asked = with_own_batch(start.job, asked)
    model = placed(start.model, dict(asked).get("world", ""))
    before = edited = prompt(model, start.waits)
    recorded = np.ones(1) if start.curves is None else start.curves.ratios
    for name, value in asked:
        after = edit(name).apply(edited.fresh(), value)
        if start.curves is not None and start.curves.recorded and name == "batch":
            after = fitted(after, start.curves, _micro_batch(start, asked))
        if start.curves is not None and start.curves.off and name == "accumulation":
            after = counted(after, start.curves, _count(start, asked))
        if name != "seq" or "batch" not in dict(asked):  # else both are one change of tokens
            before = edited
        far = distance(before, after, recorded)
        edited = accumulated_together(before, edited, after, name, far)
    edited = late(edited, start.model, start.waits)
    if start.left_out is not None:
        edited = follow(edited, start.model)
    if start.waits.any():
        edited = edited.with_assumption(
            "ranks are not recorded: in their collectives, time beyond the pace of the fastest "
            "tenth is taken for waiting; it may be transfer"
        )
    return settled(edited, start.contention, start.concurrent_share)


def _micro_batch(start: Baseline, asked: Sequence[tuple[str, str]]) -> float:
    """Return the micro-batch over the recorded one."""
    value = dict(asked).get("batch")
    return 1.0 if value is None else edit("batch").apply(start.model, value).activation_scale


def _count(start: Baseline, asked: Sequence[tuple[str, str]]) -> float:
    """Return the number of micro-batches over the recorded one."""
    values = dict(asked)
    if "accumulation" not in values or start.curves is None or not start.curves.counted:
        return 1.0
    model = start.model
    if "batch" in values:
        model = edit("batch").apply(model, values["batch"])
    return edit("accumulation").apply(model, values["accumulation"]).samples / model.samples


def refused(start: Baseline, asked: tuple[tuple[str, str], ...], measured: int) -> Answer:
    return Answer(asked, measured, start.gate.verdict)


def _verdict(start: Baseline, change: int) -> str:
    verdict = start.gate.verdict
    within = 0 < abs(change) <= 2 * start.gate.residual_pct / 100 * start.step_ns
    return f"{verdict}; the change is {INDISTINGUISHABLE}" if within else verdict
