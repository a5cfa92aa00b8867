"""What a report holds, before it has a form."""

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.core.version import VERSION
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Facts
from htk.faces.report.lanes import LaneCells, select_lanes
from htk.traces.trace.trace import Trace
from htk.traces.trace.within_memory import within_memory
from htk.verdicts.overview.summary import Verdict, reach_verdict
from htk.whatif.api import WhatIf
from htk.whatif.label import BATCHES, SHARDINGS

# Sections, and the questions that each answers where the recording can.
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("time", "Time", ("time_breakdown", "step_times", "step_variance", "idle_breakdown")),
    ("kernels", "Kernels", ("kernel_top", "kernel_families", "short_kernels")),
    (
        "communication",
        "Communication",
        (
            "comm_summary",
            "comm_wait",
            "comm_overlap_by_group",
            "stragglers",
            "straggler_steps",
        ),
    ),
    (
        "operators",
        "Operators and phases",
        ("phase_breakdown", "op_breakdown", "module_breakdown", "flops"),
    ),
    ("memory", "Memory", ("memory_timeline", "memory_peaks")),
)
# What a job's operation-level rows answer, and a profile does not.
_JOB = (
    "job",
    "The whole job",
    (
        "straggler_slowdown",
        "straggler_causes",
        "slowdown_by_worker",
        "slowdown_by_stage",
        "slowdown_by_type",
        "straggler_whatif",
    ),
)


@dataclass(frozen=True)
class Answered:
    """A question, and its answer or why there is none."""

    name: str
    result: Result | None
    why: str = ""


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    answers: tuple[Answered, ...]


@dataclass(frozen=True)
class WhatIfs:
    """What could be won at most, of a server by each change; and of training the map of batch and
    sharding (a row for each strategy)."""

    bounds: Result | None
    map: Result | None
    why: str = ""  # there is no map


@dataclass(frozen=True)
class Report:
    title: str
    command: str
    created: str  # UTC
    versions: dict[str, str]
    verdict: Verdict
    devices: str
    span_ns: int
    lanes: LaneCells | None
    whatif: WhatIfs
    sections: tuple[Section, ...]

    @property
    def unanswered(self) -> list[Answered]:
        return [a for section in self.sections for a in section.answers if a.result is None]


@within_memory
def gather_report(
    trace: Trace, *, title: str, command: str, by: str = "kernel", whatif: bool = True
) -> Report:
    """Ask everything that a report tells; `by`: what rows of kernels stand for."""
    ranks = trace.tables["ranks"]
    asked = (*SECTIONS, _JOB) if trace.tables["job_operations"].num_rows else SECTIONS
    sections = tuple(
        Section(key, name, tuple(_ask_question(trace, analysis, by) for analysis in questions))
        for key, name, questions in asked
    )
    spans = [(r["start_ns"], r["end_ns"]) for r in ranks.to_pylist() if r["start_ns"] is not None]
    return Report(
        title,
        command,
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        list_versions(),
        reach_verdict(trace),
        _describe_devices(ranks.select(["rank", "device_name"]).to_pylist()),
        max((e or s for s, e in spans), default=0) - min((s for s, _ in spans), default=0),
        select_lanes(trace),
        _predict_whatifs(trace) if whatif else WhatIfs(None, None, "left out, as asked"),
        sections,
    )


def list_versions() -> dict[str, str]:
    own = {"htk": VERSION, "python": platform.python_version()}
    packages = ("pyarrow", "numpy", "plotly")
    return own | {name: version(name) for name in packages if find_spec(name)}


def _ask_question(trace: Trace, name: str, by: str) -> Answered:
    options = {"by": by} if name == "kernel_top" else {}
    try:
        result = ask_trace(trace, name, **options)
    except HtkError as error:
        return Answered(name, None, str(error))
    if not len(result):
        return Answered(name, None, "nothing of the kind was recorded")
    return Answered(name, result)


def _predict_whatifs(trace: Trace) -> WhatIfs:
    try:
        start = WhatIf(trace)
        bounds = start.run()
        if start.stage.served is not None:  # a server has neither micro-batches nor shards
            return WhatIfs(bounds, None)
        if start.stage.refused:
            return WhatIfs(None, None, str(bounds.coverage["verdict"]))
        swept = start.sweep("sharding", *SHARDINGS).sweep("batch", *BATCHES)
    except HtkError as error:
        return WhatIfs(None, None, str(error))
    try:
        outcome = swept.run()
    except HtkError as error:
        return WhatIfs(bounds, None, str(error))
    if all(row["step_time_ns"] is None for row in outcome.to_pylist()):
        why = sorted({str(row["verdict"]) for row in outcome.to_pylist()})
        return WhatIfs(bounds, None, "; ".join(why))
    return WhatIfs(bounds, outcome)


def _describe_devices(files: Sequence[Facts]) -> str:
    """Return the GPUs of the ranks, which may have several files each, and how many of a kind."""
    of_ranks = {(file["rank"], file["device_name"]) for file in files if file["device_name"]}
    kinds = Counter(kind for _, kind in of_ranks)
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))


def form_of(form: str | None, output: str | None) -> str:
    """Return the form that was asked for, else that of the file's ending."""
    if form:
        return form
    ending = (output or "").rpartition(".")[2].lower()
    forms = {form: form for form in ("html", "md", "json", "pdf", "xlsx")} | {"htm": "html"}
    if output and ending not in forms:
        raise UsageError(f"{output}: not a form of report; end it in html, md, json, xlsx or pdf")
    return forms.get(ending, "html")
