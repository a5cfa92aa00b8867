"""Make what answers start from: the steadiest step, replayed, and further recordings beside it."""

from collections.abc import Sequence
from dataclasses import replace

from htk.base.columns.types import take_or
from htk.base.core.humanize import format_duration
from htk.base.errors import UsageError
from htk.base.mappings import NamedTables
from htk.base.names.server_ranges import describe_lone_capture
from htk.physics.site_rates import NO_SITE, SiteByGpu
from htk.quantities.graph.fidelity import judge_steadiest_step
from htk.quantities.graph.gate import UNMARKED
from htk.whatif.curves import Recorded, fit_curves
from htk.whatif.edited_step import apply_edits
from htk.whatif.kept_memory import KeptMemory
from htk.whatif.recorded_step import Baseline
from htk.whatif.served_iteration import iteration_of_kernels, of_server
from htk.whatif.step_model import StepModel, step_model
from htk.whatif.unrecorded_waits import without_unrecorded_waits


def build_baseline(
    tables: NamedTables,
    others: Sequence[tuple[NamedTables, float | None]] = (),
    site: SiteByGpu = NO_SITE,
) -> Baseline:
    """Return the recorded step that answers start from.

    `others`: recordings of the same job at other batches, with those where known; `site`: rates
    that the site measured of its GPUs.
    """
    if capture := describe_lone_capture(tables["annotations"]["name"].unique().to_pylist()):
        raise UsageError(capture)
    kept = KeptMemory(tables["kernels"].num_rows)
    tables, unrecorded_ns = without_unrecorded_waits(tables)
    graph, replayed, judged = judge_steadiest_step(tables)
    is_served = of_server(tables) is not None
    if is_served:
        remarks = tuple(remark for remark in judged.remarks if remark != UNMARKED)
        judged = replace(judged, remarks=remarks)
    if unrecorded_ns:
        remark = f"{format_duration(unrecorded_ns)} of waiting for unrecorded work are left out"
        judged = replace(judged, remarks=(*judged.remarks, remark))
    model = step_model(tables, graph, site)
    if is_served:
        _refuse_other_work(tables, model)
    start = Baseline(tables, model, replayed, judged, None, unrecorded_ns, kept)
    if not others or start.refused:
        return start
    return _calibrate_start(
        replace(start, curves=fit_curves(start.model, start.contention, others))
    )


def _refuse_other_work(tables: NamedTables, model: StepModel) -> None:
    """Refuse to replay a step that a server's iterations have no part in, as of a capture that was
    asked for as well."""
    launching = iteration_of_kernels(tables)
    rows = model.replayed_rows
    if rows is None or not (launching >= 0).any():
        return
    if not (take_or(launching, rows) >= 0).any():
        raise UsageError(
            "the step that would be replayed is none of a server's iterations: choose their "
            "recording with --cycles, or leave out --from"
        )


def _calibrate_start(start: Baseline) -> Baseline:
    """Return the baseline with how much the fitted step misses of each recorded one."""
    assert start.curves is not None
    off = {recording.count: _measure_miss(start, recording) for recording in start.curves.counted}
    start = replace(start, curves=replace(start.curves, off=off))
    assert start.curves is not None
    missed = {
        recording.ratio: _measure_miss(start, recording) - start.curves.off_ns(recording.count)
        for recording in start.curves.recorded
    }
    return replace(start, curves=replace(start.curves, missed=missed))


def _measure_miss(start: Baseline, recording: Recorded) -> float:
    """Return the step time of a recording less the prediction for its batch and number of
    micro-batches, in ns."""
    both = (("batch", recording.ratio), ("accumulation", recording.count))
    _, replayed = apply_edits(start, tuple((n, f"{times:.9f}x") for n, times in both if times != 1))
    change = replayed.period_ns - start.replayed.period_ns
    return float(recording.period_ns - start.step_ns - change)
