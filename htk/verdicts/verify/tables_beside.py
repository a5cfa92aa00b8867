"""The tables that Ascend's profiler writes beside a timeline or a database, against its answers.

Apart from the parsers on purpose: no reader is shared with them.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from htk.base.mappings import Fields
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import NotApplicable, Tally

_FORMATS = ("ascend", "ascend_db", "ascend_tables")
_KERNELS, _STEPS = "kernel_details.csv", "step_trace_time.csv"
_ROUNDED_NS = 10  # tables tell hundredths of a microsecond, some thousandths
_STEP_NS = 1000  # by which the sums of a step may be off
_SHARE = 0.99  # of a recording that steps cover, so that their sums are those of all
_SUMS = {
    "Computing": "compute_ns",
    "Communication": "comm_ns",
    "Communication(Not Overlapped)": "exposed_comm_ns",
}


def checks() -> list[Check]:
    """Return the check of the tables beside a recording."""
    what = f"kernels and times of steps against Ascend's {_KERNELS} and {_STEPS}"
    return [Check("tables beside", what, _tables_beside)]


def _tables_beside(subject: Subject, tally: Tally) -> None:
    """Compare each kernel's count and time, and the sums of steps."""
    ranks = {row["rank"]: Path(row["file"]) for row in subject.files if row["format"] in _FORMATS}
    if not ranks:
        raise NotApplicable("no recording of Ascend's profiler")
    for rank, file in ranks.items():
        if file.name != _KERNELS:
            _compare_kernels(subject, tally, rank, file.with_name(_KERNELS))
        _compare_steps(subject, tally, rank, file.with_name(_STEPS))
    if not tally.compared and not tally.left_out:
        raise NotApplicable(f"no {_KERNELS} or {_STEPS} beside it")


def _compare_kernels(subject: Subject, tally: Tally, rank: int | None, path: Path) -> None:
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for row in _rows(path):
        counts[row["Name"]] += 1
        times[row["Name"]] += _nanoseconds(row["Duration(us)"])
    answered: Counter[str] = Counter()
    answered_ns: Counter[str] = Counter()
    columns = ("rank", "name", "start_ns", "end_ns")
    for row in subject.trace.tables["kernels"].select(columns).to_pylist():
        if row["rank"] == rank:
            answered[row["name"]] += 1
            answered_ns[row["name"]] += row["end_ns"] - row["start_ns"]
    for name, count in counts.items():
        what = f"{path.name}, {name}"
        tally.equal(f"{what}: count", answered[name], count)
        _near(tally, f"{what}: time", answered_ns[name], times[name], _ROUNDED_NS * count)


def _compare_steps(subject: Subject, tally: Tally, rank: int | None, path: Path) -> None:
    steps = list(_rows(path))
    if not steps:
        return
    table = subject.answer("time_breakdown")
    rows = [row for row in table.to_pylist() if row["rank"] == rank]
    covered = sum(_nanoseconds(step.get("Stage")) for step in steps)
    if covered < _SHARE * sum(row["total_ns"] for row in rows):
        tally.left_out.append(f"{path.name}: its steps do not cover the recording")
        return
    for column, answer in _SUMS.items():
        expected = sum(_nanoseconds(step.get(column)) for step in steps)
        answered = sum(row[answer] for row in rows)
        _near(tally, f"{path.name}, {column}", answered, expected, _STEP_NS * len(steps))


def _near(tally: Tally, what: str, answered: int, expected: int, off: int) -> None:
    """Compare a time with one that was rounded."""
    tally.equal(what, expected if abs(answered - expected) <= off else answered, expected)


def _rows(path: Path) -> Iterator[Fields]:
    """Yield the rows of a table; none where there is no such file."""
    if path.is_file():
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            yield from csv.DictReader(file)


def _nanoseconds(microseconds: str | None) -> int:
    try:
        return round(float(microseconds or 0) * 1000)
    except ValueError:
        return 0
