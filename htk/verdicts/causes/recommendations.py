"""What to change first: causes, by what a step gains without each."""

from functools import partial
from typing import Annotated

import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.mappings import Facts, Fields
from htk.base.names.server_ranges import describe_lone_capture
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.host_time import has_next_to_no_gpu_work
from htk.traces.trace.trace import Trace
from htk.verdicts.causes import exposed_communication as exposed
from htk.verdicts.causes.cause import Example
from htk.verdicts.causes.host_only import find_host_causes
from htk.verdicts.causes.ranked import RankedCause, Ranking, rank_as_recorded, rank_by_gain
from htk.verdicts.causes.recorded import CauseEvidence
from htk.verdicts.causes.registry import find_all_causes
from htk.verdicts.causes.replayed import replay_if_trusted
from htk.verdicts.causes.served import find_served_causes, marks_iterations
from htk.verdicts.causes.source_lines import SourceLines

UNEXPLAINED = "unexplained"
_SAME_TIME = "recorded time of causes above may be the same"
_LOST = ("idle_ns", "exposed_comm_ns", "exposed_memory_ns")
_OF_UNEXPLAINED = 0.2  # that are transfers, where that is said
_OF_CHANGES = 0.2  # of the least gain, for what changed while it was recorded

RETURNS = table(
    finding=(TEXT, "What is wrong; the last row is the time that no cause explains."),
    evidence=(TEXT, "What shows it."),
    advice=(TEXT, "What to try."),
    step_gain_ns=(
        INT64,
        "What a step gains without it, by replay, mean over ranks; without steps the recording, of "
        "a server an iteration.",
    ),
    step_gain_ns_lo90=(INT64, "Lower end of the 90 % interval of that."),
    step_gain_ns_hi90=(INT64, "Upper end of the 90 % interval of that."),
    together_gain_ns=(INT64, "What a step gains without it and all causes above it."),
    basis=(TEXT, "replay; recorded: no gain can be told, the recorded time is all there is."),
    edit=(TEXT, "Options of htk whatif that make the same edit of a step; null: none do."),
    gain_ns=(
        INT64,
        "A rank's recorded time that shows it, evidence and no gain; null: no matter of time.",
    ),
    gain_pct=(FLOAT64, "That, of the recorded window."),
    overlaps=(TEXT, "How much of the gain goes with causes above; null: it is its own."),
    analysis=(TEXT, "The analysis that shows it."),
    event_names=(TEXT, "Names of the events behind it, costliest first, one a line."),
    rank=(INT32, "Rank of the costliest instance."),
    start_ns=(INT64, "Where that begins, on the rank's own clock."),
    end_ns=(INT64, "Where it ends."),
)


@analysis(returns=RETURNS, chart=Bar("finding", "step_gain_ns", horizontal=True))
def recommendations(
    time_breakdown: pa.Table,
    idle_costs: pa.Table,
    step_windows: pa.Table,
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
    kernels: Later,
    counters: Later,
    memory_extents: pa.Table,
    ranks: pa.Table,
    *,
    min_pct: Annotated[
        float, "Leave out what is smaller, in %: gains, as a share of the step."
    ] = 1.0,
    recording: Trace | None = None,
) -> pa.Table:
    """What should be changed first, and how much would a step gain without each cause?

    Each cause is an edit of the recorded steps that takes it away; what a step gains is what the
    replay of that edit gives, with its interval. Faults are told alone; bounds, such as all
    communication hidden, of the recording without its faults. Where steps cannot be replayed the
    recorded time that shows a cause is all that is told. With next to no GPU work the host's time
    is looked at: its loader, waits for other ranks, Python functions, operators. Of a server each
    is a change of how it serves, and the gain is of an iteration, for the same tokens.
    """
    arguments = locals()
    marks = [] if recording is None else recording.tables["server_marks"]["name"].to_pylist()
    if capture := describe_lone_capture(marks):
        return with_coverage(RETURNS.empty_table(), cannot_be_told=capture)
    window = int(read_numbers(time_breakdown["total_ns"]).sum())
    if recording is not None and marks_iterations(recording):
        return _of_server(recording, min_pct, window // max(time_breakdown.num_rows, 1))
    tables = {name: arguments[name] for name in recommendations.reads}
    if has_next_to_no_gpu_work(window, op_extents, step_marks):
        return _of_host(CauseEvidence(tables, None), window, min_pct)
    if not time_breakdown.num_rows:
        raise MissingTable("advice needs operators or GPU work; neither was recorded", "kernels")
    replayed, why = replay_if_trusted(recording)
    recorded = CauseEvidence(tables, replayed)
    causes = find_all_causes(recorded)
    shares = recorded.gpus * recorded.steps
    lost_ns = sum(map(recorded.total_ns, _LOST)) / shares
    step = window / shares if replayed is None else replayed.step_ns
    matters = partial(_is_worth_telling, step_ns=step, min_pct=min_pct)
    if replayed is None:
        ranking = rank_as_recorded(causes, shares, matters, lost_ns)
    else:
        ranking = rank_by_gain(causes, replayed, shares, matters, lost_ns)
    facts = {"recorded_window_ns": window // recorded.gpus, "replay": why}
    rows = [_build_cause_row(ranked, recorded.gpus, window) for ranked in ranking.causes]
    _name_lines(rows, SourceLines(recorded["python_calls"]), recording)
    if 100 * ranking.unexplained_ns >= max(min_pct * step, 1.0):
        rows.append(_build_unexplained_row(ranking, recorded))
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


def _of_server(recording: Trace, min_pct: float, window_ns: int) -> pa.Table:
    causes, why_none = find_served_causes(recording, min_pct)
    facts: Facts = {"recorded_window_ns": window_ns}
    if why_none:
        facts = {**facts, "cannot_be_told": why_none}
    return with_coverage(pa.Table.from_pylist(causes, schema=RETURNS), **facts)


def _of_host(recorded: CauseEvidence, gpu_ns: int, min_pct: float) -> pa.Table:
    causes, window = find_host_causes(recorded)
    ranks = len(recorded["ranks"]["rank"].unique())
    matters = partial(_is_worth_telling, step_ns=window / ranks, min_pct=min_pct)
    ranking = rank_as_recorded(causes, ranks, matters)
    rows = [_build_cause_row(ranked, ranks, window) for ranked in ranking.causes]
    _name_lines(rows, SourceLines(recorded["python_calls"]), None)
    without = "next to no GPU work" if gpu_ns else "no GPU work"
    facts = {
        "recorded_window_ns": window // ranks,
        "cannot_be_told": f"idle GPUs, kernels, exposed communication: {without} was recorded",
    }
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), **facts)


def _is_worth_telling(row: RankedCause, step_ns: float, min_pct: float) -> bool:
    """Return whether a cause is large enough to be told; what became worse is told sooner: it is a
    fault, not the way the job is."""
    least = min_pct * (_OF_CHANGES if row.cause.is_change else 1.0)
    if row.cause.recorded_ns is None:
        return True
    most = min(row.weight, row.recorded_ns) if row.cause.is_bound else row.weight
    return 100 * most >= max(least * step_ns, 1.0)


def _name_lines(rows: list[Fields], lines: SourceLines, recording: Trace | None) -> None:
    """Add to advice the line of the program that its costliest instance comes from."""
    for row in rows:
        if row.get("rank") is None:
            continue
        example = Example(row["rank"], row["start_ns"], row["end_ns"])
        line = lines.line_of(example, recording)
        if line is not None:
            row["advice"] = f"{row['advice']}; see {line}"


def _build_unexplained_row(ranking: Ranking, recorded: CauseEvidence) -> Fields:
    """Return the row of the time that no cause takes."""
    shares = recorded.steps * recorded.gpus
    lost = ranking.unexplained_ns * shares
    advice = "htk idle-breakdown and htk time-breakdown show where it lies"
    hidden = sum(
        row.gain.ns for row in ranking.causes if row.gain and row.cause.finding == exposed.FINDING
    )
    sent = min(exposed.exposed_transfer_ns(recorded) - hidden * shares, lost)
    if ranking.is_replayed and sent >= _OF_UNEXPLAINED * lost:
        advice = (
            f"{recorded.spent(round(sent))} of it are transfers beside which no independent "
            f"compute is known: send fewer bytes (larger batches, accumulation, lower precision); "
            f"else {advice}"
        )
    return {
        "finding": UNEXPLAINED,
        "evidence": f"GPUs do not compute for {recorded.spent(lost)}, and no cause above takes "
        "that away",
        "advice": advice,
        "basis": "replay" if ranking.is_replayed else "recorded",
        "overlaps": _SAME_TIME if ranking.is_replayed else None,
        "gain_ns": round(lost / recorded.gpus),
        "gain_pct": 100 * lost / recorded.window_ns,
        "analysis": "idle_breakdown",
    }


def _build_cause_row(ranked: RankedCause, gpus: int, window: int) -> Fields:
    cause = ranked.cause
    gain = ranked.gain
    example = ranked.cause.example
    row: Fields = {
        "finding": cause.finding,
        "evidence": cause.evidence,
        "advice": cause.advice,
        "together_gain_ns": ranked.together_ns,
        "basis": "recorded" if gain is None else "replay",
        "overlaps": ranked.overlaps,
        "analysis": cause.analysis,
        "event_names": "\n".join(cause.events) or None,
    }
    if cause.recorded_ns is not None:
        row["gain_ns"] = cause.recorded_ns // gpus
        row["gain_pct"] = 100.0 * cause.recorded_ns / max(window, 1)
    if gain is not None and cause.change is not None:
        row["edit"] = cause.change.option or None
        row |= gain.columns
    if example is not None:
        row["rank"] = example.rank if example.rank >= 0 else None
        row |= {"start_ns": example.start_ns, "end_ns": example.end_ns}
    return row
