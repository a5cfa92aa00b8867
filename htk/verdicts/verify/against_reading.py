"""Answers against the second reading: the same figures, worked out by other means."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from htk.base.core.humanize import command_name
from htk.base.schema import TABLES as VOCABULARY
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.reading import TABLES
from htk.verdicts.verify.subject import Rows, Second, Subject, answer_of, key_rows
from htk.verdicts.verify.tally import NotApplicable, Tally
from htk.verdicts.verify.totals import Facts

_KINDS = ("compute_ns", "comm_ns", "memory_ns")
_EXPOSED = ("exposed_comm_ns", "exposed_memory_ns")
_TIMES = ("total_ns", "busy_ns", *_KINDS, *_EXPOSED, "other_ns", "idle_ns")


@dataclass(frozen=True)
class Compared:
    """An analysis, and the facts of the second reading that it must agree with."""

    facts: str
    analysis: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    options: tuple[tuple[str, object], ...] = ()


# What is null, not 0, for a rank without GPU work.
_OF_GPU = {
    *("device_total_ns", "device_self_ns", "kernels", "launching_calls"),
    *("gpu_ranges", "gpu_ranges_ns", "device_ns"),
}
_ALL_RANKS = (("n", 0), ("per", "rank"))
COMPARED = {
    "kernels": Compared(
        "kernels",
        "kernel_top",
        ("rank", "name"),
        ("count", "total_ns", "duration_ns_min", "duration_ns_max"),
        _ALL_RANKS,
    ),
    "time": Compared("time", "time_breakdown", ("rank", "device", "step"), _TIMES),
    "time per step": Compared(
        "steps", "time_breakdown", ("rank", "device", "step"), _TIMES, (("per", "step"),)
    ),
    "overlap": Compared(
        "time",
        "comm_compute_overlap",
        ("rank", "device", "step"),
        ("comm_ns", "compute_ns", "overlap_ns", "exposed_comm_ns"),
    ),
    "steps": Compared(
        "step_times",
        "step_times",
        ("rank", "device", "cycle", "step"),
        ("start_ns", "cpu_ns", "gpu_period_ns"),
    ),
    **{
        f"launches{suffix}": Compared(
            f"launches{suffix}",
            "launch_stats",
            ("rank", "launched_by"),
            ("count", "kernels", "call_ns", "device_ns", "delay_ns"),
            (("n", 0), *options),
        )
        for suffix, options in {
            "": (),
            " by kernel": (("by", "kernel"),),
            " by operator": (("by", "operator"),),
        }.items()
    },
    "operators": Compared(
        "operators",
        "op_breakdown",
        ("rank", "op"),
        (
            "count",
            "cpu_total_ns",
            "cpu_self_ns",
            "device_total_ns",
            "device_self_ns",
            "kernels",
            "launching_calls",
        ),
        _ALL_RANKS,
    ),
    "ranges": Compared(
        "ranges",
        "annotation_breakdown",
        ("rank", "name"),
        (
            *("count", "cpu_total_ns", "cpu_ns_max", "gpu_ranges", "gpu_ranges_ns"),
            *("kernels", "device_ns"),
        ),
    ),
    "Python": Compared(
        "functions",
        "python_hotspots",
        ("function",),
        ("count", "total_ns", "self_ns", "device_self_ns", "device_total_ns"),
        (("n", 0),),
    ),
    "copies": Compared("copies", "memory_bandwidth", ("rank",), ("count", "total_ns")),
}


def checks() -> list[Check]:
    """Return the checks against the second reading."""
    listed = [Check("events", "rows of each table against the file's events", _compare_events)]
    for name, compared in COMPARED.items():
        shown = ", ".join(value.removesuffix("_ns") for value in compared.values)
        what = f"{command_name(compared.analysis)} against the second reading: {shown}"
        listed.append(Check(name, what, partial(_compare_answer, compared)))
    what = "all of these of a step and of a time alone, against the second reading of that part"
    return [*listed, Check("selections", what, _compare_narrowed)]


def _compare_events(subject: Subject, tally: Tally) -> None:
    facts = subject.second.facts["events"]
    tally.left_out += subject.second.left_out
    if subject.second.left_out:
        raise NotApplicable("; ".join(subject.second.left_out))
    seen = sum(row["events"] or 0 for row in subject.profiles)
    tally.equal("events", seen, facts[("events",)]["rows"])
    for name in TABLES:
        table = subject.trace.tables[name] if name in VOCABULARY else None
        rows = 0 if table is None else table.num_rows
        tally.equal(f"rows of {name}", rows, facts[(name,)]["rows"])


def _compare_answer(compared: Compared, subject: Subject, tally: Tally) -> None:
    second = subject.second
    tally.left_out += second.left_out
    if second.left_out and compared.keys[0] != "rank":
        raise NotApplicable("; ".join(second.left_out))
    before = tally.compared
    table = subject.answer_or_none(compared.analysis, **dict(compared.options))
    _compare_rows(compared, table, second.facts, second, tally, compared.analysis)
    if tally.compared == before:
        raise NotApplicable("nothing of the kind was recorded")


def _compare_narrowed(subject: Subject, tally: Tally) -> None:
    second = subject.second
    tally.left_out += second.left_out
    for choice, facts in second.narrowed:
        selected = subject.trace.sel(**choice.options)
        for compared in COMPARED.values():
            if second.left_out and compared.keys[0] != "rank":
                continue
            try:
                table = answer_of(selected, compared.analysis, **dict(compared.options))
            except NotApplicable:
                table = None
            what = f"{compared.analysis} {choice.label}"
            _compare_rows(compared, table, facts, second, tally, what)
    if not tally.compared:
        raise NotApplicable("neither steps nor GPU activities to choose were recorded")


def _compare_rows(
    compared: Compared,
    table: pa.Table | None,
    facts: Facts,
    second: Second,
    tally: Tally,
    what: str,
) -> None:
    """Compare an answer with the facts that it should give, of ranks that were read."""
    answered: Rows = {} if table is None else key_rows(table, compared.keys, compared.values)
    with_gpu = frozenset(key[0] for key in second.facts["kernels"])
    expected = _build_expected(facts, compared, with_gpu)
    if compared.analysis == "op_breakdown":
        answered = _outside_as_one(answered)
        if table is None:  # not asked where there are no operators
            expected = {key: row for key, row in expected.items() if key[1] is not None}
    if compared.keys[0] == "rank":
        answered = {key: row for key, row in answered.items() if key[0] in second.ranks}
        expected = {key: row for key, row in expected.items() if key[0] in second.ranks}
    tally.rows(what, answered, expected)


def _build_expected(facts: Facts, compared: Compared, with_gpu: frozenset[int | None]) -> Rows:
    """Return the rows that an answer should have; without GPU work its columns are null."""
    rows = facts[compared.facts]
    by_rank = compared.keys[0] == "rank"

    def find_expected_value(key: tuple[Any, ...], name: str, number: int | None) -> int | None:
        recorded = key[0] in with_gpu if by_rank else bool(with_gpu)
        return None if name in _OF_GPU and not number and not recorded else number

    return {
        key: {
            name: find_expected_value(key, name, row[name])
            for name in compared.values
            if name in row
        }
        for key, row in rows.items()
    }


def _outside_as_one(answered: Rows) -> Rows:
    """Put the rows of GPU time outside operators, one for each reason, together."""
    rows: Rows = {}
    for key, row in answered.items():
        if row["count"] is not None:
            rows[key] = row
            continue
        outside = rows.setdefault((key[0], None), {"device_self_ns": 0, "kernels": 0})
        for name in outside:
            outside[name] += row[name]
    return rows
