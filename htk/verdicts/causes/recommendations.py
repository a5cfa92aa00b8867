"""What to change first, by the time that it would win back."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import number, numbers, texts
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.schema import TEXT, table
from htk.physics.detected import common_device
from htk.quantities.measures.collective_calls import with_nccl_facts
from htk.quantities.measures.common_steps import comparable_compute
from htk.quantities.measures.gpu_slowness import slowness_by_rank
from htk.quantities.measures.host_time import has_next_to_no_gpu_work
from htk.quantities.measures.kernel_changes import kernel_changes
from htk.quantities.measures.slow_links import NcclRecords
from htk.verdicts.causes.advice.finding import Advice
from htk.verdicts.causes.advice.host import RULES as HOST_RULES
from htk.verdicts.causes.advice.host import HostTables, host_findings
from htk.verdicts.causes.advice.idle import RULES, Idle, idle_findings
from htk.verdicts.causes.advice.kernels import UnclaimedTime, changed_findings, kernel_findings
from htk.verdicts.causes.advice.launching import launch_advice
from htk.verdicts.causes.advice.links import transfer_findings
from htk.verdicts.causes.advice.memory import memory_findings
from htk.verdicts.causes.advice.waiting import Exposed, uneven_compute

UNEVEN_PCT = 5.0  # compute of the busiest rank beyond the mean; less is the noise of GPUs
OF_CHANGES = 0.2  # of the least gain, for what changed while it was recorded
_OTHER_RULES = 13

RETURNS = table(
    finding=(TEXT, "What is wrong."),
    evidence=(TEXT, "What shows it."),
    advice=(TEXT, "What to try."),
    gain_ns=(
        pa.int64(),
        "A rank's recorded time that the cause holds; null: not a matter of time.",
    ),
    gain_pct=(pa.float64(), "That, of the recorded window."),
    overlaps=(TEXT, "What other gain its time may be part of too; null: it is its own."),
    analysis=(TEXT, "The analysis that shows it."),
    event_names=(TEXT, "Names of the events behind it, costliest first, one a line."),
    rank=(pa.int32(), "Rank of the costliest instance."),
    start_ns=(pa.int64(), "Where that begins, on the rank's own clock."),
    end_ns=(pa.int64(), "Where it ends."),
)


@analysis(returns=RETURNS, chart=Bar("finding", "gain_ns", horizontal=True))
def recommendations(
    time_breakdown: pa.Table,
    idle_costs: pa.Table,
    idle_causes: Later,
    stalls: pa.Table,
    step_windows: pa.Table,
    step_window_times: Later,
    kernel_totals: pa.Table,
    collective_shares: Later,
    own_times: Later,
    aligned_matches: pa.Table,
    collectives: pa.Table,
    collective_facts: pa.Table,
    comm_transports: pa.Table,
    comm_inits: pa.Table,
    op_extents: pa.Table,
    op_totals: Later,
    launch_totals: Later,
    cpu_ops: Later,
    op_links: Later,
    op_passes: Later,
    op_callers: Later,
    step_marks: pa.Table,
    annotations: Later,
    python_calls: Later,
    python_links: Later,
    memory_extents: pa.Table,
    ranks: pa.Table,
    *,
    min_pct: Annotated[
        float, "Leave out what is smaller, in %: gains, as a share of the time."
    ] = 1.0,
) -> pa.Table:
    """What should be changed first, and how much recorded time does each cause hold?

    Gains are means over ranks of time in the recorded window, and disjoint: together they are never
    more than that window. A cause has all of its time: what the GPU is idle for it, and what other
    ranks wait because of it. Where a gain may be part of another one, `overlaps` says so. What a
    step would take without a cause is asked of `htk whatif`. With next to no GPU work the host's
    time is looked at: its loader, waits for other ranks, Python functions, operators.
    """
    gpus = max(time_breakdown.num_rows, 1)
    window = int(numbers(time_breakdown["total_ns"]).sum())
    if has_next_to_no_gpu_work(window, op_extents, step_marks):
        host = HostTables(
            cpu_ops(),
            op_links(),
            op_passes(),
            op_callers(),
            annotations(),
            python_calls(),
            python_links(),
            collectives,
            aligned_matches,
            ranks,
            own_times,
        )
        return _of_host(host, window, len(ranks["rank"].unique()), min_pct)
    if not time_breakdown.num_rows:
        raise MissingTable("advice needs operators or GPU work; neither was recorded", "kernels")
    idle = Idle.of(idle_costs)
    named = with_nccl_facts(collectives, collective_facts)
    exposed = Exposed.of(named, aligned_matches, ranks, collective_shares)
    waits = exposed.waits(own_times, idle_causes, stalls)
    work = UnclaimedTime(kernel_totals, time_breakdown)
    changes = kernel_changes(kernel_totals, step_windows)
    changed, explained = changed_findings(work, changes, exposed, waits)
    waits = waits.without(explained)
    exposed_ns, comm_ns = (
        int(numbers(time_breakdown[c]).sum()) for c in ("exposed_comm_ns", "comm_ns")
    )
    records = NcclRecords(collectives, collective_facts, comm_transports, comm_inits)
    transfers, held_up = transfer_findings(exposed, waits, (exposed_ns, comm_ns), gpus, records)
    waits = waits.without(held_up)
    advice = launch_advice(op_totals(), launch_totals(), ranks)
    comparable = comparable_compute(time_breakdown, step_window_times)
    findings = [
        *idle_findings(idle, gpus, exposed.waits_by_finding(waits), advice),
        *changed,
        *exposed.late_findings(waits, slowness_by_rank(kernel_totals)),
        *exposed.undetermined_findings(ranks),
        *transfers,
        *([] if len(waits.row) or not comm_ns else uneven_compute(comparable, UNEVEN_PCT)),
        *kernel_findings(work, common_device(ranks), gpus),
        *memory_findings(memory_extents, ranks),
    ]
    answer = _table([f for f in findings if _matters(f, window, min_pct)], window, gpus)
    rules = len(RULES) + _OTHER_RULES
    facts = {"recorded_window_ns": window // gpus, "rules": rules}
    if waits.unrecorded_ns:
        facts["waits_before_recordings_ns"] = waits.unrecorded_ns // gpus
    return with_coverage(answer, **facts)


def _of_host(tables: HostTables, gpu_ns: int, ranks: int, min_pct: float) -> pa.Table:
    findings, window = host_findings(tables)
    answer = _table([f for f in findings if _matters(f, window, min_pct)], window, ranks)
    without = "next to no GPU work" if gpu_ns else "no GPU work"
    facts = {
        "recorded_window_ns": window // ranks,
        "rules": HOST_RULES,
        "cannot_be_told": f"idle GPUs, kernels, exposed communication: {without} was recorded",
    }
    return with_coverage(answer, **facts)


def _matters(finding: Advice, window: int, min_pct: float) -> bool:
    """Return what became worse is told sooner: it is a fault, not the way the job is."""
    least = min_pct * (OF_CHANGES if finding.is_change else 1.0)
    return finding.gain_ns is None or (window > 0 and 100 * finding.gain_ns >= least * window)


def _table(findings: list[Advice], window: int, gpus: int) -> pa.Table:
    findings = sorted(findings, key=lambda f: 1 if f.gain_ns is None else -f.gain_ns)
    gain = np.array([f.gain_ns or 0 for f in findings], np.int64)
    timed = np.array([f.gain_ns is not None for f in findings], bool)
    examples = [f.example for f in findings]
    seen = np.array([e is not None for e in examples], bool)
    rank, start, end = (
        np.array([getattr(e, name) if e else 0 for e in examples], np.int64)
        for name in ("rank", "start_ns", "end_ns")
    )
    return pa.table(
        [
            texts([f.finding for f in findings]),
            texts([f.evidence for f in findings]),
            texts([f.advice for f in findings]),
            number(gain // gpus, pa.int64(), timed),
            number(100.0 * gain / max(window, 1), pa.float64(), timed),
            texts([f.overlaps for f in findings]),
            texts([f.analysis for f in findings]),
            texts(["\n".join(f.events) or None for f in findings]),
            number(rank, pa.int32(), seen & (rank >= 0)),
            number(start, pa.int64(), seen),
            number(end, pa.int64(), seen),
        ],
        schema=RETURNS,
    )
