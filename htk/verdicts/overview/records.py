"""What logs of jobs and of hangs tell in a line."""

import pyarrow.compute as pc

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import codes_of
from htk.base.core.humanize import cut_message, format_duration, pluralize_count
from htk.base.core.recording_hints import NO_TIMES, describe_contents
from htk.base.errors import HtkError
from htk.quantities.derived.host_states import OF_SYSTEM
from htk.traces.trace.trace import Trace

# What stands beside a recording, and says nothing without one.
_COMPANIONS = ("job_layouts", "kernel_stacks", "link_samples")


def describe_logged_job(trace: Trace, counts: str, formats: str) -> tuple[str, bool]:
    """Return what was logged of a job, and below it what stragglers cost; and whether that is
    known."""
    many = pluralize_count(
        pc.count_distinct(trace.tables["job_operations"]["step"]).as_py(), "step"
    )
    slowdown, is_known = _tell_stragglers(trace)
    logged = f"{counts} of {many} ({formats}); no profile, so no GPU work"
    return f"{logged}\n{slowdown}", is_known


def _tell_stragglers(trace: Trace) -> tuple[str, bool]:
    try:
        job = ask_trace(trace, "straggler_slowdown").to_pylist()[0]
        causes = ask_trace(trace, "straggler_causes").to_pylist()
    except HtkError as error:
        return f"Stragglers: {error}", False
    likely = next((row for row in causes if row["likely"]), None)
    why = (
        f"likely {likely['cause'].replace('_', ' ')}: {likely['evidence']}"
        if likely
        else "no likely cause"
    )
    step = format_duration(int(job["recorded_ms"] * 1e6))
    excess = format_duration(int(job["excess_ms"] * 1e6))
    return f"Stragglers: {job['slowdown']:.2f}x, {excess} of a step of {step}; {why}", True


def describe_emptiness(trace: Trace) -> str:
    """Return why files that were read tell nothing."""
    if trace.tables["execution_nodes"].num_rows:
        return NO_TIMES
    issues = trace.tables["parse_issues"].to_pylist()
    unread = [issue for issue in issues if issue["kind"] == "unread_events"]
    if unread:
        count = pluralize_count(sum(issue["count"] for issue in unread), "event")
        kinds = "; ".join(dict.fromkeys(issue["text"] for issue in unread))
        return f"{count}, none of them read ({kinds})"
    if calls := _count_calls(trace):
        return f"{calls}, and nothing that they launched; record what the device did"
    beside = [describe_contents(name) for name in _COMPANIONS if trace.tables[name].num_rows]
    if beside:
        return f"{' and '.join(beside)}, and no recording; open both together"
    return "no events; did the profiler run while the program worked?"


def _count_calls(trace: Trace) -> str:
    """Return how many calls of the host were recorded, in words; nothing where there are none."""
    of_system = trace.tables["launches"]["api"].to_pylist().count(OF_SYSTEM)
    of_runtime = trace.tables["launches"].num_rows - of_system
    counts = {"runtime call": of_runtime, "system call": of_system}
    return " and ".join(pluralize_count(count, name) for name, count in counts.items() if count)


_DEAD = {"flight_recorder", "watchdog", "python_stacks", "traceback", "job_log"}  # post-mortem


def post_mortem(trace: Trace) -> str | None:
    """Return what the traces of a hang or of errors say; None: there are none."""
    sources = {
        source
        for name in ("collectives", "comm_groups", "python_stacks", "comm_notes")
        for source in codes_of(trace.tables[name]["source"])[1].to_pylist()
    }
    warned = [
        row["text"] for row in trace.tables["comm_notes"].to_pylist() if row["level"] == "WARN"
    ]
    if not sources & _DEAD and not warned:
        return None
    answer = ask_trace(trace, "hang").coverage
    if not sources & _DEAD and not answer["decided"]:
        first = cut_message(warned[0])
        return f"NCCL warns, {pluralize_count(len(warned), 'time')}: {first}"
    return f"Hang: {answer['verdict']}"
