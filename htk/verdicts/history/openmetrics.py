"""What to alert on, as OpenMetrics that Prometheus' node-exporter reads from a file.

Names and labels stay. A run is called by its folder, so that a job that is recorded again and again
under one name is one series.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from htk.answers.ask import ask_trace
from htk.base.errors import HtkError, MissingTable
from htk.base.mappings import Facts
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.stragglers import find_most_waited_for
from htk.verdicts.history.archive import History, KeptRun
from htk.verdicts.history.run_facts import judged_facts
from htk.verdicts.overview.summary import build_summary_result, reach_verdict

# Gauges of a run: name, what it is, and the fact of it, in so many of the gauge's unit.
_FACTS = (
    ("htk_step_seconds", "Step of median length over ranks.", "step_time_ns", 1e-9),
    ("htk_step_p90_seconds", "One step in ten is longer.", "step_time_ns_p90", 1e-9),
    ("htk_mfu_ratio", "Model FLOPs over what the GPUs could do.", "mfu_pct", 0.01),
    ("htk_straggler_slowdown_ratio", "What stragglers multiply a step by.", "slowdown", 1.0),
)
_SHARE = ("htk_time_share_ratio", "Share of the recorded window, mean over ranks.")
_GAIN = ("htk_cause_gain_seconds", "What a step gains without a cause, by replay.")
_SLOWEST = ("htk_slowest_rank", "The rank that others wait for most.")
_COST = ("htk_slowest_rank_cost_seconds", "What others wait for it, in the recording.")
_PARTS = {"compute": "compute", "exposed copies": "exposed_copies"}

Sample = tuple[dict[str, str], float]  # labels, and the value


@dataclass(frozen=True)
class MeasuredRun:
    """What is told of one run."""

    name: str
    facts: Facts  # a row of a history; empty: of a recording without steps
    summary: Sequence[Facts]  # rows of `htk summary`
    slowest: Facts | None = None  # a row of `htk stragglers`


def measure_run(trace: Trace, name: str) -> MeasuredRun:
    """Return what is told of a recording."""
    judged = reach_verdict(trace)
    try:
        row = judged_facts(trace, name, judged).row
    except MissingTable:
        row = {}
    return MeasuredRun(name, row, build_summary_result(judged).to_pylist(), _find_slowest(trace))


def newest_runs(history: History, runs: Sequence[KeptRun]) -> list[MeasuredRun]:
    """Return what is told of the newest run of each name."""
    newest = {str(run.row["name"]): run for run in runs}
    return [
        MeasuredRun(name, run.row, history.summary(run.run).to_pylist())
        for name, run in newest.items()
    ]


def write_openmetrics(runs: Sequence[MeasuredRun]) -> str:
    """Return the gauges of runs, a family after the other."""
    lines: list[str] = []
    for name, help_text, samples in _list_families(runs):
        if not samples:
            continue
        lines.append(f"# TYPE {name} gauge")
        if name.endswith("_seconds"):
            lines.append(f"# UNIT {name} seconds")
        lines.append(f"# HELP {name} {help_text}")
        lines += [f"{name}{_spell_labels(labels)} {value:.9g}" for labels, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _list_families(runs: Sequence[MeasuredRun]) -> Iterator[tuple[str, str, list[Sample]]]:
    for name, help_text, fact, unit in _FACTS:
        telling = [run for run in runs if run.facts.get(fact) is not None]
        yield name, help_text, [({"run": run.name}, run.facts[fact] * unit) for run in telling]
    yield (*_SHARE, [sample for run in runs for sample in _list_shares(run)])
    yield (*_GAIN, [sample for run in runs for sample in _list_gains(run)])
    waited_for = [(run.name, run.slowest) for run in runs if run.slowest is not None]
    yield (*_SLOWEST, [({"run": name}, row["rank"]) for name, row in waited_for])
    yield (*_COST, [({"run": name}, row["cost_to_others_ns"] * 1e-9) for name, row in waited_for])


def _list_shares(run: MeasuredRun) -> list[Sample]:
    """Return the shares of compute, of what nothing hides, and of idle time."""
    sums: dict[str, float] = {}
    for row in run.summary:
        if row["part"] == "time":
            idle_or_exposed = "idle" if row["analysis"] == "idle_breakdown" else "exposed_comm"
            part = _PARTS.get(row["name"], idle_or_exposed)
            sums[part] = sums.get(part, 0.0) + row["share_pct"] / 100
    return [({"run": run.name, "part": part}, share) for part, share in sums.items()]


def _list_gains(run: MeasuredRun) -> list[Sample]:
    """Return the largest gain of each kind of cause; of a server by what would change."""
    gains: dict[str, float] = {}
    for row in run.summary:
        if row["part"] == "cause" and row.get("step_gain_ns") is not None:
            cause = row["name"] if row["analysis"] == "whatif" else row["analysis"]
            gains[cause] = max(gains.get(cause, 0.0), row["step_gain_ns"] * 1e-9)
    return [({"run": run.name, "cause": cause}, gain) for cause, gain in gains.items()]


def _find_slowest(trace: Trace) -> Facts | None:
    try:
        return find_most_waited_for(ask_trace(trace, "stragglers").to_pylist())
    except HtkError:
        return None


def _spell_labels(labels: Mapping[str, str]) -> str:
    marks = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
    pairs = (f'{name}="{value.translate(marks)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"
