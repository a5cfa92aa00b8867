"""The tables that Ascend's profiler writes beside a timeline or a database, against its answers.

Apart from the parsers on purpose: no reader is shared with them.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from htk.base.mappings import Fields
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import answer_of, rows_of
from htk.verdicts.verify.tally import NotApplicable, Tally

_FORMATS = ("ascend", "ascend_db", "ascend_tables")
_NO_KERNEL: Fields = {"count": 0, "total_ns": 0, "kind": None, "tensor_core": None}
_KERNELS, _STEPS = "kernel_details.csv", "step_trace_time.csv"
_COMMUNICATE = ("HCCL", "COMMUNICATION")
_WITHOUT_CUBES = ("AI_VECTOR_CORE", "MIX_AIV", "AI_CPU")  # nor matrix units of another sort
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
    return [
        Check(
            "tables beside", what, lambda subject, tally: compare_with_tally(subject.trace, tally)
        )
    ]


def measure_tables(trace: Trace) -> int:
    """Return the bytes of the tables beside a recording."""
    paths = {
        file.with_name(name)
        for file in _find_recordings(trace).values()
        for name in (_KERNELS, _STEPS)
    }
    return sum(path.stat().st_size for path in paths if path.is_file())


def compare_with_tally(trace: Trace, tally: Tally) -> None:
    """Compare each kernel's count, time and kind, and the sums of steps."""
    recordings = _find_recordings(trace)
    if not recordings:
        raise NotApplicable("no recording of Ascend's profiler")
    values = ("count", "total_ns", "kind", "tensor_core")
    answers = rows_of(trace, "kernel_top", ("rank", "name"), values, n=0, per="rank")
    for rank, file in recordings.items():
        answered = {name: row for (whose, name), row in answers.items() if whose == rank}
        _compare_kernels(tally, answered, list(_read_rows(file.with_name(_KERNELS))))
        _compare_steps(trace, tally, rank, file.with_name(_STEPS))
    if not tally.compared and not tally.left_out:
        raise NotApplicable(f"no {_KERNELS} or {_STEPS} beside it")


def _find_recordings(trace: Trace) -> dict[int | None, Path]:
    """Return the file of each rank that Ascend's profiler recorded."""
    rows = trace.tables["ranks"].to_pylist()  # a row for each file
    return {row["rank"]: Path(row["file"]) for row in rows if row["format"] in _FORMATS}


def _compare_kernels(tally: Tally, answered: Mapping[str, Fields], rows: list[Fields]) -> None:
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    cores: dict[str, str] = {}
    for row in rows:
        name = row.get("Name") or ""
        counts[name] += 1
        times[name] += _parse_nanoseconds(row.get("Duration(us)"))
        cores[name] = (row.get("Accelerator Core") or "").strip()
    for name, count in counts.items():
        answer = answered.get(name, _NO_KERNEL)
        what = f"{_KERNELS}, {name}"
        tally.equal(f"{what}: count", answer["count"], count)
        _compare_rounded(
            tally, f"{what}: time", answer["total_ns"], times[name], _ROUNDED_NS * count
        )
        if cores[name] in _COMMUNICATE:
            tally.equal(f"{what}, on {cores[name]}: kind", answer["kind"], "comm")
        elif cores[name] in _WITHOUT_CUBES:
            use = {True: "used"}.get(answer["tensor_core"], "not used")
            tally.equal(f"{what}, on {cores[name]}: tensor cores", use, "not used")


def _compare_steps(trace: Trace, tally: Tally, rank: int | None, path: Path) -> None:
    steps = list(_read_rows(path))
    if not steps:
        return
    rows = [row for row in answer_of(trace, "time_breakdown").to_pylist() if row["rank"] == rank]
    covered = sum(_parse_nanoseconds(step.get("Stage")) for step in steps)
    if covered < _SHARE * sum(row["total_ns"] for row in rows):
        tally.left_out.append(f"{path.name}: its steps do not cover the recording")
        return
    for column, answer in _SUMS.items():
        expected = sum(_parse_nanoseconds(step.get(column)) for step in steps)
        answered = sum(row[answer] for row in rows)
        _compare_rounded(tally, f"{path.name}, {column}", answered, expected, _STEP_NS * len(steps))


def _compare_rounded(tally: Tally, what: str, answered: int, expected: int, off: int) -> None:
    """Compare a time with one that was rounded."""
    tally.equal(what, expected if abs(answered - expected) <= off else answered, expected)


def _read_rows(path: Path) -> Iterator[Fields]:
    """Yield the rows of a table up to what is no table; none where there is no such file."""
    if path.is_file():
        with (
            path.open(encoding="utf-8-sig", errors="replace", newline="") as file,
            suppress(csv.Error),
        ):
            yield from csv.DictReader(file)


def _parse_nanoseconds(microseconds: str | None) -> int:
    try:
        return round(float(microseconds or 0) * 1000)
    except (ValueError, OverflowError):  # no number, or none that is finite
        return 0
