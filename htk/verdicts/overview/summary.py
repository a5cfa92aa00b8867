"""The verdict: step time, where it goes, the first causes, what to look at next."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from htk.answers.ask import ask_trace
from htk.answers.output.coverage_text import damage_words
from htk.answers.output.result import Result
from htk.base.columns.arrow import codes_of, mark_valid, read_booleans, read_numbers
from htk.base.core.humanize import format_duration, pluralize_count
from htk.base.core.label import Label
from htk.base.errors import MissingTable
from htk.base.mappings import Facts, Fields
from htk.base.names.server_ranges import describe_lone_capture
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.quantities.measures.host_time import has_next_to_no_gpu_work
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.trace import Trace
from htk.traces.trace.within_memory import within_memory
from htk.verdicts.causes.recommendations import UNEXPLAINED
from htk.verdicts.causes.served import marks_iterations
from htk.verdicts.overview.exposed_comm import exposed_comm
from htk.verdicts.overview.host_time import host_time
from htk.verdicts.overview.parts import FirstCause, Share, name_whatif
from htk.verdicts.overview.records import describe_emptiness, describe_logged_job, post_mortem
from htk.verdicts.overview.served import ServedVerdict, served_verdict

CAUSES = 3
LEAST_PCT = 0.05  # a smaller share reads 0.0 %, and is not told of

# What files hold that are no profile: the table, what its row is, and who answers for them.
_RECORDS = (
    ("collectives", "collective", ("comm_summary", "what was communicated, and how fast")),
    ("bench_points", "benchmark point", ("comm_model", "latency and bandwidth of the benchmark")),
    ("comm_counts", "communicator count", ("comm_progress", "which ranks are behind")),
    (
        "memory",
        "memory event",
        ("memory_peaks", "when memory is at its highest, and what holds it"),
    ),
    (
        "job_operations",
        "logged operation",
        ("straggler_causes", "why the job is slower than its peers' operations allow"),
    ),
)

RETURNS = table(
    part=(TEXT, "time: where the time goes; cause: what to change first; next: what to ask next."),
    name=(TEXT, "What."),
    total_ns=(INT64, "Mean over ranks, of the recorded window; of a cause, what it holds."),
    step_ns=(INT64, "The same, of a step of median length; null without steps."),
    share_pct=(FLOAT64, "Of the recorded window. Rows of `time` add up to 100."),
    step_gain_ns=(INT64, "Of a cause: what a step gains without it, by replay; null: untold."),
    step_gain_ns_lo90=(INT64, "Lower end of its 90 % interval."),
    step_gain_ns_hi90=(INT64, "Upper end of it."),
    text=(TEXT, "What shows it, and what to try."),
    analysis=(TEXT, "The analysis that shows it."),
)

# Causes of idle time as the verdict words them; what is not listed stands under its own name.
IDLE_WORDS = {
    "host_operator": "idle: host in operators",
    "host_runtime_call": "idle: host in runtime calls",
    "host_python": "idle: host in Python",
    "host_data_loading": "idle: data loading",
    "host_system_call": "idle: host in the operating system",
    "host_sync": "idle: blocking calls",
    "host_allocation": "idle: memory allocation",
    "host_compilation": "idle: compilation",
    "host_start_up": "idle: start-up",
    "host_lazy_loading": "idle: kernel loading",
    "host_gc": "idle: garbage collection",
    "launch_latency": "idle: launch latency",
    "between_queued_kernels": "idle: between queued kernels",
    "inside_cuda_graph": "idle: inside graphs",
    "stream_event_wait": "idle: waiting for an event",
    "unrecorded_gpu_work_suspected": "unrecorded GPU work suspected",
    "profiler_overhead": "idle: profiler",
    "back_to_back": "between kernels",
    "unknown": "idle: cause unknown",
}
_IDLE_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
_OF_A_CAUSE = (
    *("advice", "gain_ns", "gain_pct", "analysis", "step_gain_ns", "step_gain_ns_lo90"),
    *("step_gain_ns_hi90", "together_gain_ns", "edit", "overlaps"),
)


@dataclass(frozen=True)
class Verdict:
    ranks: tuple[int, ...]
    window_ns: int  # mean over ranks
    step_ns: int | None  # median GPU step, or the host's without GPU work
    step_spread_ns: int | None  # longest less shortest
    cpu_step_ns: int | None
    steps: int
    shares: tuple[Share, ...]  # add up to 100 %
    causes: tuple[FirstCause, ...]
    next: tuple[tuple[str, str], ...]  # analysis, and why
    coverage: Facts = field(default_factory=dict)
    records: str = ""  # what there is, of files that are no profile
    unexplained_pct: float = 0.0  # lost, and no cause takes it away
    served: str = ""  # what a server's iterations do, in a sentence
    gpu_note: str = ""  # no GPU work to speak of, in words: steps and shares are the host's

    @property
    def total_ns(self) -> int:
        """Return the time that shares refer to, in ns: a step, or else the recorded window."""
        return self.step_ns or self.window_ns

    @property
    def unit(self) -> str:
        """Return what the gains are of, in words."""
        if self.served:
            return "an iteration"
        return "a step" if self.step_ns else "the recording"

    @property
    def whole(self) -> str:
        """Return what the total is of, in words."""
        return "the iterations" if self.served else self.unit

    @property
    def on_host(self) -> bool:
        """Whether steps and shares describe the host, for want of GPU work."""
        return bool(self.gpu_note)

    @property
    def visible_shares(self) -> list[Share]:
        """The shares that are large enough to be shown."""
        return [share for share in self.shares if share.pct >= LEAST_PCT]

    @property
    def headline(self) -> str:
        """The verdict in a sentence, and what cannot be in the recording."""
        damage = damage_words(self.coverage)
        return f"{self._sentence}; damaged: {damage}" if damage else self._sentence

    @property
    def _sentence(self) -> str:
        if self.records:
            return self.records
        many = pluralize_count(len(self.ranks), "rank")
        steps = pluralize_count(self.steps, "step")
        if self.served:
            return f"{many}, {self.served}" if len(self.ranks) > 1 else self.served
        if self.step_ns is None:
            covers = "covers" if self.steps == 1 else "cover"
            steps_text = f"of which {steps} {covers} little" if self.steps else "no whole steps"
            return f"{many}, {format_duration(self.window_ns)} recorded, {steps_text}"
        cpu = f", on the host {format_duration(self.cpu_step_ns)}" if self.cpu_step_ns else ""
        spread = f" (spread {format_duration(self.step_spread_ns or 0)})" if self.steps > 1 else ""
        if self.on_host:
            step = format_duration(self.step_ns)
            return f"{many}, step on the host {step}{spread}; {steps}"
        return f"{many}, step {format_duration(self.step_ns)}{spread}{cpu}; {steps}"


@within_memory
def reach_verdict(trace: Trace) -> Verdict:
    """Return what a first look at a trace finds; without GPU work, the host's steps and why."""
    if trace.emptied("rank_windows"):
        trace.need("rank_windows")  # says what was chosen
    steps = _read_steps(trace)
    facts = describe_coverage(
        trace, ("activities", "kernel_links", "rank_windows", "aligned_matches")
    )
    if not trace.tables["rank_windows"].num_rows:
        if not trace.tables["cpu_ops"].num_rows:
            return _of_records(trace, facts)
        return _of_host(trace, steps, facts, 0)
    times = ask_trace(trace, "time_breakdown").table
    recorded = int(read_numbers(times["total_ns"]).sum())
    window = recorded // times.num_rows
    shares = _compute_shares(trace, times)
    marks = trace.tables["server_marks"]["name"].to_pylist()
    if capture := describe_lone_capture(marks):
        return _of_server(trace, ServedVerdict(capture, ()), (), shares, window, facts)
    if has_next_to_no_gpu_work(recorded, trace.tables["op_extents"], trace.tables["step_marks"]):
        return _of_host(trace, steps, facts, window)
    if 2 * steps.covered < recorded:  # such as those of a recorded capture: no measure of the rest
        steps = _Steps(None, None, None, None, steps.count, steps.covered)
    advice = ask_trace(trace, "recommendations")
    causes, unexplained = _list_causes(advice)
    if marks_iterations(trace) and (served := served_verdict(trace, advice)) is not None:
        return _of_server(trace, served, causes, shares, window, facts)
    return Verdict(
        tuple(trace.ranks),
        window,
        steps.period,
        steps.spread,
        steps.cpu,
        steps.count,
        shares,
        causes,
        _suggest_next(trace, shares, causes, steps.count),
        facts,
        unexplained_pct=unexplained,
    )


def _of_server(
    trace: Trace,
    served: ServedVerdict,
    causes: tuple[FirstCause, ...],
    shares: tuple[Share, ...],
    window: int,
    facts: Facts,
) -> Verdict:
    """Return the verdict on a server's iterations, without waits for what was not recorded."""
    unrecorded = IDLE_WORDS["unrecorded_gpu_work_suspected"]
    waited = sum(share.time_ns for share in shares if share.name == unrecorded)
    total = max(window - waited, 1)
    recorded = (share for share in shares if share.name != unrecorded)
    own = tuple(replace(share, pct=100.0 * share.time_ns / total) for share in recorded)
    ranks = tuple(trace.ranks)
    return Verdict(
        ranks, total, None, None, None, 0, own, causes, served.next, facts, served=served.headline
    )


def _of_host(trace: Trace, steps: "_Steps", facts: Facts, gpu_ns: int) -> Verdict:
    """Return the verdict where no GPU work was recorded, or next to none."""
    host = host_time(trace)
    causes, _ = _list_causes(ask_trace(trace, "recommendations"))
    wanted = host.next
    if gpu_ns:
        work = f"{format_duration(gpu_ns)} of GPU work, beside {format_duration(host.window_ns)}"
        wanted = (*wanted, ("kernel_top", work))
    return Verdict(
        tuple(trace.ranks),
        host.window_ns,
        steps.cpu,
        steps.cpu_spread,
        steps.cpu,
        steps.count,
        host.shares,
        causes,
        wanted,
        facts,
        gpu_note=f"{'Next to no' if gpu_ns else 'No'} GPU work was recorded.",
    )


def _of_records(trace: Trace, facts: Facts) -> Verdict:
    """Return what NCCL's own records, benchmarks and memory files tell without a profile."""
    counted: list[Any] = [(trace.tables[name].num_rows, *rest) for name, *rest in _RECORDS]
    held = [record for record in counted if record[0]]
    died = post_mortem(trace)
    if not held and died is None:
        files = ", ".join(part.file for part in trace.files[:3])
        raise MissingTable(f"{files}: {describe_emptiness(trace)}")
    ranks = tuple(trace.ranks)
    who = [pluralize_count(len(ranks), "rank")] if ranks else []
    wanted: dict[str, str] = dict(record[2] for record in held)
    formats = ", ".join(sorted({f for f in trace.tables["ranks"]["format"].to_pylist() if f}))
    what = ", ".join([*who, *(pluralize_count(rows, noun) for rows, noun, _ in held)])
    if trace.tables["job_operations"].num_rows:
        headline, is_known = describe_logged_job(trace, what, formats)
        if is_known:
            wanted["slowdown_by_worker"] = "which worker, and in how many steps"
        else:
            del wanted["straggler_causes"]
    else:
        source = f"{what} ({formats})" if what else formats
        headline = f"{source}; no profile, so no steps and no GPU work"
    if died is not None:
        headline = f"{died}\n{headline}"
        wanted = {"hang": "who is missing, and where each rank stands", **wanted}
    return Verdict(ranks, 0, None, None, None, 0, (), (), tuple(wanted.items()), facts, headline)


@dataclass(frozen=True)
class _Steps:
    period: int | None
    spread: int | None
    cpu: int | None
    cpu_spread: int | None
    count: int
    covered: int  # by all of them, also those cut off, on all devices


def _read_steps(trace: Trace) -> _Steps:
    try:
        steps = ask_trace(trace, "step_times").table
    except MissingTable:
        return _Steps(None, None, None, None, 0, 0)
    covered = int(read_numbers(steps["duration_ns"]).sum())
    steps = steps.filter(
        pa.array(read_booleans(steps["complete"]) & mark_valid(steps["duration_ns"]))
    )
    if not steps.num_rows:
        return _Steps(None, None, None, None, 0, covered)
    length = read_numbers(steps["duration_ns"])
    cpu = read_numbers(steps["cpu_ns"])[mark_valid(steps["cpu_ns"])]
    cpu_spread = int(cpu.max() - cpu.min()) if len(cpu) else None
    return _Steps(
        int(np.median(length)),
        int(length.max() - length.min()),
        int(np.median(cpu)) if len(cpu) else None,
        cpu_spread,
        len(
            np.unique(np.column_stack([read_numbers(steps[c]) for c in ("cycle", "step")]), axis=0)
        ),
        covered,
    )


def _compute_shares(trace: Trace, times: pa.Table) -> tuple[Share, ...]:
    """Return shares that add up to the window: what runs, then why nothing does."""
    lanes = times.num_rows
    total = max(int(read_numbers(times["total_ns"]).sum()), 1)

    def build_share(name: str, value: int, source: str) -> Share:
        return Share(name, int(value) // lanes, 100.0 * int(value) / total, source)

    sums = {c: int(read_numbers(times[c]).sum()) for c in times.column_names if c.endswith("_ns")}
    bars = [build_share("compute", sums["compute_ns"], "kernel_top")]
    bars += [build_share(n, v, a) for n, v, a in exposed_comm(trace, sums["exposed_comm_ns"])]
    bars.append(build_share("exposed copies", sums["exposed_memory_ns"], "memory_bandwidth"))
    bars.append(build_share("whole CUDA graphs", sums["other_ns"], "kernel_top"))
    idle = ask_trace(trace, "idle_breakdown").table
    codes, names = codes_of(idle["cause"])
    by_cause = np.bincount(codes, read_numbers(idle["idle_ns"]), minlength=len(names))
    listed = sorted(
        zip(by_cause.astype(np.int64).tolist(), map(str, names.to_pylist()), strict=True),
        reverse=True,
    )
    bars += [build_share(IDLE_WORDS.get(c, c), ns, "idle_breakdown") for ns, c in listed]
    return tuple(s for s in bars if s.time_ns or s.name == "compute")


def _in_words(evidence: str) -> str:
    """Return what shows a cause, with causes of idle time as people call them."""
    return _IDLE_NAME.sub(lambda m: IDLE_WORDS.get(m[0], m[0]).removeprefix("idle: "), evidence)


def _list_causes(advice: Result) -> tuple[tuple[FirstCause, ...], float]:
    """Return the first causes, and the share that all causes leave unexplained, in %."""
    rows = advice.to_pylist()
    left = next((row["gain_pct"] for row in rows if row["finding"] == UNEXPLAINED), 0.0)
    first_causes = (
        FirstCause(r["finding"], _in_words(r["evidence"]), *(r[column] for column in _OF_A_CAUSE))
        for r in rows
        if r["finding"] != UNEXPLAINED
    )
    return tuple(first_causes)[:CAUSES], left


def _suggest_next(
    trace: Trace, shares: tuple[Share, ...], causes: tuple[FirstCause, ...], steps: int
) -> tuple[tuple[str, str], ...]:
    """Return the what-if of the first cause, the analyses behind all, and what is always wanted."""
    whatifs = [name_whatif(number, c.edit) for number, c in enumerate(causes, 1) if c.edit]
    wanted = dict(whatifs[:1])
    wanted |= {c.analysis: c.finding for c in causes}
    compute = next((s.pct for s in shares if s.name == "compute"), 0.0)
    if compute >= 50:
        wanted.setdefault("kernel_top", f"compute is {compute:.0f} % of the time")
        if trace.tables["cpu_ops"].num_rows:
            wanted.setdefault("roofline", "how near its operators come to what the GPU can do")
    if steps > 1:
        wanted.setdefault("step_variance", "why steps differ")
    if len(trace.ranks) > 1:
        wanted.setdefault("stragglers", "who holds the others up")
    return tuple(wanted.items())


def summarise_trace(trace: Trace) -> Result:
    """Return the verdict on a trace as a table."""
    return build_summary_result(reach_verdict(trace))


def build_summary_result(verdict: Verdict) -> Result:
    """Return the verdict as a table, in the shape of every other answer."""
    step = verdict.step_ns
    rows = [_build_part_row("time", s.name, s, step) for s in verdict.shares]
    for cause in verdict.causes:
        row = _build_part_row("cause", cause.finding, cause, step)
        ends = {"step_gain_ns_lo90": cause.low_ns, "step_gain_ns_hi90": cause.high_ns}
        text = f"{cause.evidence}. Try: {cause.advice}"
        rows.append({**row, "step_gain_ns": cause.gain_ns, **ends, "text": text})
    for name, why in verdict.next:
        rows.append({"part": "next", "name": name, "text": why, "analysis": name.split()[0]})
    facts = {
        "verdict": verdict.headline,
        "step_ns": step,
        "cpu_step_ns": verdict.cpu_step_ns,
        "steps": verdict.steps,
        "recorded_window_ns": verdict.window_ns,
    }
    answer = pa.Table.from_pylist(rows, schema=RETURNS)
    return Result(LABEL, answer, facts | dict(verdict.coverage))


def _build_part_row(part: str, name: str, timed: Share | FirstCause, step_ns: int | None) -> Fields:
    row = {"part": part, "name": name, "analysis": timed.analysis}
    if timed.pct is None:
        return row
    of_step = None if step_ns is None else round(timed.pct / 100 * step_ns)
    return row | {"total_ns": timed.time_ns, "step_ns": of_step, "share_pct": timed.pct}


LABEL = Label("summary", "Where did the time go, and what should be looked at first?")
