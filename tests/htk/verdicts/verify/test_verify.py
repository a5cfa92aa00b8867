"""What `htk verify` finds clean, and that it notices what is wrong."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses import ANALYSES, MenuEntry
from htk.base.core.analysis import Analysis
from htk.traces.trace.opening import OpenOptions
from htk.verdicts.verify.outcome import (
    DIFFERS,
    Outcome,
    all_checks,
    list_outcomes,
    summarise_outcomes,
)
from htk.verdicts.verify.subject import Subject
from tests.htk.verdicts.verify.two_busy_ranks import write_ranks
from tests.kineto_file import kernel, launch, op, write

SAMPLES = Path(__file__).parents[4] / "sample_traces"
Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_ranks(tmp_path_factory.mktemp("ranks"))


def differing(subject: Subject) -> dict[str, str]:
    return {o.check.name: o.finding for o in list_outcomes(subject) if o.state == DIFFERS}


def only(subject: Subject, name: str) -> Outcome:
    """The outcome of one check."""
    check = next(check for check in all_checks() if check.name == name)
    return next(iter(list_outcomes(subject, [check])))


def test_the_last_line_says_what_cannot_be(tmp_path: Path) -> None:
    fine = [op("aten::mm", 0, 9), launch(1, 1), kernel("gemm", 5, 3, 1)]
    damaged = [*fine, kernel("late", 20, -5, 2)]
    unread = [*fine, *({**op("npu", k, 1), "ph": "b"} for k in range(20))]
    for events, words in (
        (fine, ""),
        (damaged, "; the recording is damaged: 1 negative duration taken as 0"),
        (unread, "; held to none: 20 events of kinds that are not read"),
    ):
        subject = Subject(str(write(tmp_path / "t.json", *events)), quick=True)
        counts = "0 checks: 0 ok, 0 differ, 0 not applicable"
        assert summarise_outcomes([], subject.trace) == f"{counts}{words}"


# -- what is right is found right


def test_every_check_applies_to_a_trace_that_has_everything(ranks: Path) -> None:
    for outcome in list_outcomes(Subject(str(ranks))):
        if outcome.check.name in (
            "other formats",
            "tables beside",
            "store",
        ):  # which a profiler trace is not of
            continue
        assert outcome.state == "ok", f"{outcome.check.name}: {outcome.finding}"
        assert outcome.tally.compared


@pytest.mark.parametrize("profiler", ["nsight", "rocprof_json"])
def test_records_of_the_host_beside_kernels_change_no_sum(profiler: str) -> None:
    """They were taken for the job's communication, of which no kernel is."""
    dumps = SAMPLES / "flight_recorder/hang_missing_rank_v2.10"
    subject = Subject([str(SAMPLES / profiler), str(dumps)], OpenOptions(cache=False))
    assert not differing(subject)


# Samples on which htk itself is wrong today, and why. To be emptied: nothing may stay here.
STILL_WRONG: dict[str, str] = {}
SETS = ["sample"] + [
    str(path)
    for folder in sorted(SAMPLES.iterdir())
    if folder.is_dir() and folder.name not in ("simulated", "__pycache__")
    for path in (sorted(p for p in folder.iterdir() if p.is_dir()) or [folder])
    if folder.name != "kineto"  # files of several jobs
]
SETS.append(str(SAMPLES / "kineto/rank*.pt.trace.json"))
FOLDERS = [Path(path).parent for path in SETS]
FIRST = [
    path
    for path, parent in zip(SETS, FOLDERS, strict=True)
    if parent == SAMPLES or SETS[FOLDERS.index(parent)] == path
]


def _by_day_or_night(path: str) -> Any:
    """Verify the first recording of each second folder by day, and all of them at night."""
    return pytest.param(path, marks=() if path in FIRST[1::2] else pytest.mark.nightly)


@pytest.mark.parametrize(
    "path",
    [_by_day_or_night(path) for path in SETS if Path(path).name not in STILL_WRONG],
    ids=lambda path: Path(path).name,
)
def test_samples_are_clean(path: str) -> None:
    assert differing(Subject(path)) == {}


# -- what is wrong is noticed


@dataclass(frozen=True)
class Corrupt(MenuEntry):
    """An analysis whose answer is changed on its way out."""

    change: Change = list

    def load(self, name: str) -> Analysis[...]:
        real = super().load(name)

        @functools.wraps(real.function)
        def changed(*args: Any, **options: Any) -> pa.Table:
            table = real.function(*args, **options)
            return pa.Table.from_pylist(self.change(table.to_pylist()), schema=table.schema)

        return replace(real, function=changed)


def corrupt(monkeypatch: pytest.MonkeyPatch, name: str, change: Change) -> None:
    entry = ANALYSES[name]
    monkeypatch.setitem(ANALYSES, name, Corrupt(entry.module, entry.question, change))


def off_by_one(*columns: str) -> Change:
    """The last row that has a value in a column is 1 ns, or 1, too much."""

    def change(rows: Rows) -> Rows:
        for column in columns:
            last = next((row for row in reversed(rows) if row[column] is not None), None)
            if last is not None:
                last[column] += 1
        return rows

    return change


def swap(left: str, right: str) -> Change:
    return lambda rows: [row | {left: row[right], right: row[left]} for row in rows]


def without_rank(rank: int) -> Change:
    return lambda rows: [row for row in rows if row["rank"] != rank]


def without_rank_together(rank: int) -> Change:
    """A rank that is answered alone, and forgotten beside others."""

    def change(rows: Rows) -> Rows:
        ranks = {row["rank"] for row in rows}
        return [row for row in rows if len(ranks) == 1 or row["rank"] != rank]

    return change


def zero_together(column: str) -> Change:
    """What an overflow does: right for each rank alone, 0 where ranks are pooled."""

    def change(rows: Rows) -> Rows:
        ranks = {row["rank"] for row in rows}
        return [row | {column: 0} if len(ranks) > 1 else row for row in rows]

    return change


WRONG: tuple[tuple[str, Change, tuple[str, ...]], ...] = (
    ("kernel_top", off_by_one("total_ns"), ("kernels", "kernel time", "ranges agree")),
    ("kernel_top", off_by_one("count"), ("kernels", "kernel time", "ranges agree")),
    ("kernel_top", swap("duration_ns_min", "duration_ns_max"), ("kernels",)),
    ("kernel_top", without_rank_together(1), ("kernels", "rank alone")),
    ("kernel_families", off_by_one("total_ns"), ("kernel time",)),
    ("time_breakdown", off_by_one("busy_ns"), ("time", "time per step", "window", "halves")),
    ("time_breakdown", off_by_one("exposed_comm_ns"), ("time", "window", "communication")),
    ("time_breakdown", swap("compute_ns", "comm_ns"), ("time", "time per step", "communication")),
    ("time_breakdown", without_rank(0), ("time", "time per step")),
    ("time_breakdown", zero_together("compute_ns"), ("time", "rank alone")),
    ("kernel_kinds", off_by_one("total_ns"), ("window",)),
    ("idle_breakdown", off_by_one("idle_ns"), ("window",)),
    ("comm_compute_overlap", off_by_one("overlap_ns"), ("overlap", "communication")),
    ("comm_compute_overlap", swap("overlap_ns", "exposed_comm_ns"), ("overlap", "communication")),
    ("comm_overlap_by_group", off_by_one("exposed_ns"), ("communication",)),
    ("comm_summary", off_by_one("shared_ns"), ("communication",)),
    ("comm_summary", off_by_one("wait_ns"), ("waits",)),
    ("comm_wait", off_by_one("transfer_ns"), ("waits",)),
    ("collective_times", off_by_one("wait_ns"), ("waits",)),
    ("collective_times", swap("wait_ns", "transfer_ns"), ("waits",)),
    ("step_times", off_by_one("gpu_period_ns"), ("steps", "steps fill the window")),
    ("step_times", off_by_one("cpu_ns"), ("steps",)),
    ("step_times", off_by_one("start_ns"), ("steps",)),
    ("launch_stats", off_by_one("delay_ns"), ("launches",)),
    ("launch_stats", off_by_one("kernels"), ("launches", "launches by kernel")),
    ("launch_stats", off_by_one("call_ns"), ("launches by operator",)),
    ("launch_stats", without_rank_together(1), ("launches", "rank alone")),
    ("op_breakdown", off_by_one("device_self_ns"), ("operators", "kernel time")),
    ("op_breakdown", off_by_one("cpu_self_ns"), ("operators",)),
    ("op_breakdown", swap("cpu_total_ns", "cpu_self_ns"), ("operators",)),
    ("op_breakdown", zero_together("cpu_total_ns"), ("operators", "rank alone")),
    ("op_tree", off_by_one("device_self_ns"), ("kernel time",)),
    ("phase_breakdown", off_by_one("kernels"), ("kernel time", "ranges agree", "halves")),
    ("late_arrivals", off_by_one("wait_total_ns"), ("waits",)),
    ("annotation_breakdown", off_by_one("cpu_total_ns"), ("ranges",)),
    ("annotation_breakdown", off_by_one("device_ns"), ("ranges", "ranges agree")),
    ("annotation_breakdown", without_rank_together(1), ("ranges", "rank alone")),
    ("memory_bandwidth", off_by_one("total_ns"), ("copies",)),
    ("python_hotspots", off_by_one("self_ns"), ("Python",)),
    ("python_hotspots", off_by_one("device_total_ns"), ("Python",)),
    ("kernel_occupancy", off_by_one("occupancy_limit_pct", "occupancy_limit_pct"), ("occupancy",)),
    ("python_hotspots", swap("self_ns", "total_ns"), ("Python",)),
)


UNNAMED = ("communication", "window", "occupancy")


@pytest.mark.parametrize(
    ("analysis", "change", "noticed_by"), WRONG, ids=[f"{k}-{w[0]}" for k, w in enumerate(WRONG)]
)
def test_a_wrong_answer_is_noticed(
    analysis: str,
    change: Change,
    noticed_by: tuple[str, ...],
    ranks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrupt(monkeypatch, analysis, change)
    subject = Subject(str(ranks))
    for name in noticed_by:
        outcome = only(subject, name)
        assert outcome.state == DIFFERS, f"{name}: {outcome.finding}"
        named = {analysis, analysis.replace("_", "-")}
        assert any(n in outcome.finding for n in named) or name in UNNAMED


def test_a_file_of_two_processes_is_not_read_once_for_each(tmp_path: Path) -> None:
    """Its second reading does not tell processes apart; adding it up twice would find a difference
    where none is."""
    events = [op("aten::mm", 0, 10), launch(1, 2), kernel("a", 20, 5, 1)]
    other = [{**event, "pid": event["pid"] + 1} for event in events]
    other[2] = {**other[2], "args": {**other[2]["args"], "device": 1}}
    write(tmp_path / "both.json", *events, *other)
    subject = Subject(str(tmp_path))
    assert subject.trace.ranks == [0, 1]
    assert "several ranks" in only(subject, "kernels").finding
    assert not differing(subject)


def test_times_choose_by_start_what_no_call_launched(tmp_path: Path) -> None:
    """Operators that are told by ids alone begin earlier than what they launched."""
    events = []
    for number in range(1, 11):
        operator = op("aten::mm", 100 * number, 40)
        activity = kernel("gemm", 100 * number + 70, 20, 0)
        operator["args"]["External id"] = number
        activity["args"] = {"device": 0, "stream": 7, "External id": number}
        events += [operator, activity]
    assert not differing(Subject(str(write(tmp_path / "t.json", *events))))


def test_what_has_no_name_is_the_same_in_both_readings(tmp_path: Path) -> None:
    events = [
        *[op("aten::mm", 0, 40), op("", 50, 40)],
        *[launch(1, 5), launch(2, 55) | {"name": ""}, launch(3, 57)],
        *[kernel("gemm", 60, 10, 1), kernel("", 80, 10, 2), kernel("", 95, 10, 3)],
    ]
    assert not differing(Subject(str(write(tmp_path / "t.json", *events))))
