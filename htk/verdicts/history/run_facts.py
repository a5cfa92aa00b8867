"""What a history keeps of a run: its steps, where their time goes, and what they cost."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.analyses.ops.flops import mean_mfu
from htk.answers.ask import ask_trace
from htk.base.columns.arrow import mark_valid, read_booleans, read_numbers
from htk.base.core.version import VERSION as HTK_VERSION
from htk.base.errors import AnalysisError, HtkError, MissingTable
from htk.base.mappings import Facts, Fields
from htk.traces.compare.baseline import RecordedBaseline, build_cost_baseline
from htk.traces.trace.trace import Trace
from htk.verdicts.history.tables import RUNS
from htk.verdicts.overview.summary import Verdict, build_summary_result, reach_verdict

_EPOCH_NS = 631_152_000_000_000_000  # 1990: earlier times are a clock's own
_LISTED_RANKS = 64  # of missing ones, in the coverage


@dataclass(frozen=True)
class RunFacts:
    """One run: its row of RUNS, what its steps cost, the verdict."""

    row: Facts
    costs: RecordedBaseline
    summary: pa.Table

    @property
    def run(self) -> str:
        """Name of the run in a history."""
        return str(self.row["run"])


def run_facts(trace: Trace, name: str) -> RunFacts:
    """Return the facts of a recording; MissingTable if it has neither steps nor operations."""
    return judged_facts(trace, name, reach_verdict(trace))


def judged_facts(trace: Trace, name: str, judged: Verdict) -> RunFacts:
    """Return the facts of a recording whose verdict is there already."""
    ranks = trace.tables["ranks"]
    spans = recorded_spans(trace)
    costs = build_cost_baseline(trace.tables)
    row: Fields = dict.fromkeys(RUNS.names)
    row |= {
        "run": hash_identity(spans),
        "name": name,
        "recorded_at": _find_moment(spans),
        "device_name": ", ".join(_list_distinct(ranks, "device_name")) or None,
        "host": next(iter(_list_distinct(ranks, "host")), None),
        "world_size": pc.max(ranks["world_size"]).as_py(),
        "rank_count": len(trace.ranks),
        "environment": next(iter(_list_distinct(ranks, "environment")), None),
        "htk_version": HTK_VERSION,
    }
    if trace.tables["job_operations"].num_rows:
        row |= _of_operations(trace) | {"rank_count": spans.num_rows}
    elif costs.steps:
        row |= _of_steps(trace, costs)
    else:
        raise MissingTable(
            f"{name}: neither complete steps nor logged operations, so nothing to keep over time; "
            "call profiler.step() in the loop"
        )
    row["coverage"] = json.dumps(_kept_coverage(judged.coverage), separators=(",", ":"))
    return RunFacts(row, costs, build_summary_result(judged).table)


def recorded_spans(trace: Trace) -> pa.Table:
    """Return when each rank was recorded, file by file; of logged operations as one."""
    rows = trace.tables["job_operations"]
    if rows.num_rows:
        spans = rows.group_by("rank").aggregate([("start_ns", "min"), ("end_ns", "max")])
        return spans.select(["rank", "start_ns_min", "end_ns_max"]).rename_columns(_SPAN)
    return trace.tables["ranks"].select(_SPAN)


_SPAN = ["rank", "start_ns", "end_ns"]


def hash_identity(spans: pa.Table) -> str:
    """Return the name of what was recorded when, wherever its files lie and whatever reads them."""
    if spans["start_ns"].null_count == len(spans):
        raise MissingTable("the recording has no times, so it cannot be told from another run")
    rows = sorted(str(tuple(row.values())) for row in spans.to_pylist())  # a few for each rank
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]


def _find_moment(spans: pa.Table) -> str | None:
    """Return when the first event was, as text that sorts by time."""
    first = pc.min(spans["start_ns"]).as_py()
    if first is None or first < _EPOCH_NS:
        return None
    seconds, rest = divmod(int(first), 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    except (OverflowError, ValueError, OSError):
        return None


def _list_distinct(ranks: pa.Table, name: str) -> list[str]:
    return sorted({value for value in ranks[name].to_pylist() if value})


def _of_steps(trace: Trace, costs: RecordedBaseline) -> Fields:
    """Facts of the complete steps, of all ranks."""
    steps = ask_trace(trace, "step_times").table
    steps = steps.filter(pa.array(read_booleans(steps["complete"])))
    column = "cpu_ns" if costs.on_host else "gpu_period_ns"
    length = read_numbers(steps[column])[mark_valid(steps[column])]
    if not len(length):
        raise MissingTable("no complete step has a length; record more steps")
    p10, p50, p90 = np.quantile(length, (0.1, 0.5, 0.9)).tolist()
    facts = {
        "step_count": costs.steps,
        "timed_on": "host" if costs.on_host else "gpu",
        "step_time_ns": round(p50),
        "step_time_ns_p10": p10,
        "step_time_ns_p90": p90,
    }
    if costs.on_host:  # nothing tells what the GPUs did
        return facts
    times = costs.kinds["time"]
    for column, thing in _SHARES.items():
        series = times.get(thing)
        facts[column] = 0 if series is None else round(series.mean)
    return facts | {"mfu_pct": _measure_mfu(trace)}


_SHARES = {"compute_ns": "compute", "exposed_comm_ns": "exposed communication", "idle_ns": "idle"}


def _measure_mfu(trace: Trace) -> float | None:
    """Return the mean MFU over GPUs; None where shapes or the GPU are not known."""
    try:
        return mean_mfu(ask_trace(trace, "flops").table)
    except AnalysisError:
        return None


def _of_operations(trace: Trace) -> Fields:
    """Facts of a job whose operations were logged: what stragglers cost it."""
    answer = ask_trace(trace, "straggler_slowdown").to_pylist()
    job = answer[0]
    steps = [row["recorded_ms"] * 1e6 for row in answer[1:]]
    p10, p90 = np.quantile(steps, (0.1, 0.9)).tolist()
    layouts = trace.tables["job_layouts"]
    sizes = layouts["world_size"].to_pylist()
    return {
        "world_size": sizes[0] if len(sizes) == 1 else None,
        "environment": next(iter(_list_distinct(layouts, "environment")), None),
        "step_count": len(steps),
        "timed_on": "operations",
        "step_time_ns": round(job["recorded_ms"] * 1e6),
        "step_time_ns_p10": p10,
        "step_time_ns_p90": p90,
        "slowdown": job["slowdown"],
        "launch_slowdown": job["launch_slowdown"],
        "excess_gpu_hours": job["excess_gpu_hours"],
        "cause": _find_cause(trace),
    }


def _find_cause(trace: Trace) -> str | None:
    try:
        rows = ask_trace(trace, "straggler_causes").to_pylist()
    except HtkError:
        return None
    return next((row["cause"] for row in rows if row["likely"]), None)


def _kept_coverage(facts: Facts) -> Fields:
    """Return the coverage without long lists."""
    return {
        name: value[:_LISTED_RANKS] if isinstance(value, list) else value
        for name, value in facts.items()
    }
