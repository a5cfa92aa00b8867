"""Ask htk about a recording, and compare each cell with what is expected."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.truth.expected import (
    gpu,
    host,
    idle,
    other,
    phases,
    roofline,
    stalls,
    steps,
    work,
)
from bench.truth.expected.sums import Row, Rows
from bench.truth.model import Recording
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.against_reading import checks
from htk.verdicts.verify.outcome import list_outcomes
from htk.verdicts.verify.subject import Subject


@dataclass(frozen=True)
class Question:
    """A question with its options, the columns that tell its rows apart, and what is expected."""

    name: str
    keys: tuple[str, ...]
    expected: Callable[[Recording], Rows]
    options: tuple[tuple[str, Any], ...] = ()
    key_of_row: Callable[[Row], tuple[Any, ...]] | None = None

    @property
    def label(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.options)])


_STEP = ("rank", "device", "step")
_POOLS = [("all", ("rank", "step")), ("rank", ("rank", "step")), ("step", ("rank", "step"))]
_ALL = (("n", 0),)


def _questions() -> Iterator[Question]:
    for per, who in _POOLS:
        options = (("per", per), *_ALL)
        yield Question(
            "kernel_top", (*who, "name"), lambda r, per=per: gpu.kernel_top(r, per), options
        )
        yield Question(
            *("kernel_families", (*who, "family", "kind")),
            lambda r, per=per: gpu.kernel_families(r, per),
            (("per", per),),
        )
        yield Question(
            "op_breakdown", (*who, "op"), lambda r, per=per: host.op_breakdown(r, per), options
        )
        yield Question(
            *("roofline", (*who, "name", "shapes")),
            lambda r, per=per: roofline.roofline(r, per),
            options,
        )
    for per in ("rank", "step"):
        options = (("per", per),)
        yield Question(
            "time_breakdown", _STEP, lambda r, per=per: gpu.time_breakdown(r, per), options
        )
        yield Question(
            *("phase_breakdown", ("rank", "step", "phase")),
            lambda r, per=per: phases.phase_breakdown(r, per),
            options,
        )
        yield Question(
            *("kernel_kinds", (*_STEP, "kinds")),
            lambda r, per=per: gpu.kernel_kinds(r, per),
            options,
        )
    for by in ("device", "stream"):
        yield Question(
            *("idle_breakdown", ("rank", "device", "stream", "cause")),
            lambda r, by=by: idle.idle_breakdown(r, by),
            (("by", by),),
        )
    for by in ("call", "kernel", "operator"):
        yield Question(
            *("launch_stats", ("rank", "launched_by")),
            lambda r, by=by: host.launch_stats(r, by),
            (("by", by), *_ALL),
        )
    for by in ("duration", "kernel", "op"):
        key = ("from_us",) if by == "duration" else ("label",)
        yield Question(
            "short_kernels", key, lambda r, by=by: host.short_kernels(r, by), (("by", by), *_ALL)
        )
    yield Question("host_stalls", ("rank", "cause", "name", "stack"), stalls.host_stalls, _ALL)
    yield Question("step_times", _STEP, gpu.step_times)
    yield Question("step_variance", _STEP, steps.step_variance)
    yield Question("memory_replay", ("rank", "device", "case"), other.memory_replay)
    yield Question("memory_bandwidth", ("rank", "direction", "memory"), gpu.memory_bandwidth)
    yield Question(
        "kernel_occupancy",
        ("name", "grid", "block", "resident_blocks", "total_ns", "count"),
        gpu.kernel_occupancy,
        _ALL,
    )
    yield Question("matrix_calls", ("shapes",), work.matrix_calls, _ALL)
    for per in ("rank", "step"):
        options = (("per", per),)
        yield Question("flops", _STEP, lambda r, per=per: work.flops(r, per), options)
    yield Question("op_tree", ("path",), host.op_tree, (("min_pct", 0),))
    yield Question("python_hotspots", ("function",), host.python_hotspots, _ALL)
    yield Question("module_breakdown", ("module",), host.module_breakdown, _ALL)
    yield Question("annotation_breakdown", ("rank", "name"), host.annotation_breakdown)
    yield Question(
        *("kernel_sequences", ("op", "kernel_sequence", "length")), host.kernel_sequences, _ALL
    )
    yield Question("queue_length", ("rank", "device", "stream"), other.queue_length)
    yield Question("compile_graph_coverage", ("rank", "how"), other.compile_graph_coverage)
    yield Question("memory_peaks", ("rank", "device", "holder"), other.memory_peaks, _ALL)
    yield Question("memory_timeline", ("rank", "device", "time_ns"), other.memory_timeline)


QUESTIONS = tuple(_questions())
_RANKS = "of several ranks and what they communicate: `bench.communication`"
_SERVERS = "of servers, whose ranges no recording here has"
# Questions of other subjects that are not asked, and why.
NOT_ASKED = {
    **dict.fromkeys(("comm_compute_overlap", "comm_compute_ratio", "gpu_speed"), _RANKS),
    **dict.fromkeys(("stragglers", "straggler_steps", "fsdp_units"), _RANKS),
    **dict.fromkeys(("moe_balance", "pipeline_bubble"), _RANKS),
    **dict.fromkeys(("iteration_gaps", "iteration_times", "serving_iterations"), _SERVERS),
    **dict.fromkeys(("critical_path", "recommendations"), "a model's, whose errors are told"),
    "fusible_chains": "rests on a replay, and is held to planted chains",
    "hideable_comm": "rests on a replay, and is held to jobs simulated both ways",
    "kernel_gap": "rests on measured kernels, which are held to measurements left out",
    "kernel_metrics": "of another recorder, held to a public recording",
    "change_points": "a judgement about six steps or more, held to planted changes",
}
# Columns that number rows or lay segments where addresses let guess them.
NOT_COMPARED = {
    "op_tree": {"id"},
    "memory_replay": {"reserved_bytes_max", "unused_pct", "segments"},
    "matrix_calls": {"kernel_names"},  # where several took equally long
}


def differences(recording: Recording, path: Path) -> tuple[int, list[str]]:
    """Return how many values were compared, and those that differ."""
    trace = open_trace([path])
    compared, differing = 0, []
    complete, usual = steps.whole_steps(recording), steps.among_ranks(recording)
    for question in QUESTIONS:
        expected = question.expected(recording)
        answered = _answered(trace, question)
        for key in dict.fromkeys([*expected, *answered]):
            if key not in answered or key not in expected:
                compared += 1
                side = "answered" if key in answered else "missing"
                differing.append(f"{question.label}: row {key} is {side}")
                continue
            more = _of_every_question(question, answered[key], complete, usual)
            columns = more | expected[key]
            held = {*question.keys, *columns, *NOT_COMPARED.get(question.name, ())}
            missing = answered[key].keys() - held
            differing += [f"{question.label} {key} {name}: is not held" for name in missing]
            for name, value in columns.items():
                compared += 1
                if not recording.activities and name in _OF_GPU:
                    value = None  # not recorded, which is not 0
                if not _equal(answered[key][name], value):
                    differing.append(
                        f"{question.label} {key} {name}: {answered[key][name]} for {value}"
                    )
    return compared, differing


def selected_differences(path: Path) -> tuple[int, list[str]]:
    """Return the same of answers of a step and of a time alone, by the second reading."""
    (check,) = (check for check in checks() if check.name == "selections")
    (outcome,) = list_outcomes(Subject(str(path)), [check])
    tally = outcome.tally
    return tally.compared, [f"selections: {outcome.finding}"] if tally.different else []


def _of_every_question(
    question: Question, row: Row, complete: Mapping[Any, bool], usual: Mapping[Any, Row]
) -> Row:
    """Return what columns of one name hold in every answer."""
    where = row.get("device"), row.get("step")
    of_step = row.get("step") is not None
    columns: Row = {"cycle": 0 if of_step or question.name.startswith("memory_") else None}
    # What is left behind the last step is no whole one; a step without GPU work is the host's.
    parts = ("per", "step") in question.options and not of_step
    columns["complete"] = complete.get(where, not parts)
    columns |= usual.get(where, {"skew_ns": None, "over_usual_ns": None})
    columns |= dict.fromkeys(("by", "category", "python_frames"))
    columns |= {"types": None} if question.name == "op_breakdown" else {}
    return {name: value for name, value in columns.items() if name in row}


def _answered(trace: Trace, question: Question) -> Rows:
    try:
        table = ask_trace(trace, question.name, **dict(question.options)).table
    except MissingTable:
        return {}
    rows: Rows = {}
    paths = {row.get("id"): row.get("path") for row in table.to_pylist()}
    for row in table.to_pylist():
        if "parent" in row:  # numbers of rows are no more than that
            row["parent"] = paths.get(row["parent"])
        key = tuple(row[name] for name in question.keys)
        if question.name == "kernel_kinds" and row["rank"] is None:
            continue
        rows[key] = row
    return rows


def _equal(answered: object, expected: object) -> bool:
    if isinstance(expected, float) and isinstance(answered, int | float):
        return math.isclose(answered, expected, rel_tol=1e-9, abs_tol=1e-9)
    return answered == expected


_OF_GPU = (
    *("device_total_ns", "device_self_ns", "device_ns", "device_busy_ns", "backward_device_ns"),
    "gpu_idle_caused_ns",
    *("kernels", "kernels_per_call", "launching_calls", "gpu_ranges", "gpu_ranges_ns"),
)
