"""Runs of a history as an answer, narrowed by tags, name and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.columns.arrow import build_texts, with_column
from htk.base.core.chart import Line
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.schema import TEXT, doc_of, table
from htk.base.schema.columns import Column
from htk.verdicts.history.archive import History, KeptRun
from htk.verdicts.history.notes import Mark, has_tags
from htk.verdicts.history.tables import RUNS

_SAID = {
    "tags": (TEXT, "What people called the run by, and its commit where recorded."),
    "mark": (TEXT, "good or bad, as somebody said; null: nobody did."),
    "added_at": (TEXT, "When it was added to the history, UTC."),
}
_OF_A_LIST = (
    "run", "name", "recorded_at", "device_name", "world_size", "rank_count", "step_count",
    "timed_on", "step_time_ns", "step_time_ns_p10", "step_time_ns_p90", "compute_ns",
    "exposed_comm_ns", "idle_ns", "mfu_pct", "slowdown", "launch_slowdown", "excess_gpu_hours",
    "cause", "host", "environment", "htk_version",
)  # fmt: skip


def _list_columns() -> dict[str, Column]:
    """Return the columns of RUNS, in the order of a list."""
    return {n: (RUNS.field(n).type, doc_of(RUNS.field(n))) for n in _OF_A_LIST}


RETURNS = table(**_list_columns(), **_SAID)
LABEL = Label(
    "history",
    "What did each run take, and since when?",
    Line("recorded_at", "step_time_ns"),
)


@dataclass(frozen=True)
class Wanted:
    """Which runs of a history are looked at; all, unless said."""

    tags: Mapping[str, str] = field(default_factory=dict)
    since: str = ""  # as times sort as text
    before: str = ""
    mark: Mark = ""

    def chosen(self, runs: Sequence[KeptRun]) -> list[KeptRun]:
        """Return the runs that are wanted, by time."""
        return [
            run
            for run in runs
            if has_tags(run.tags, self.tags)
            and (not self.since or run.when >= self.since)
            and (not self.before or run.when < self.before)
            and (not self.mark or run.remarks.mark == self.mark)
        ]


def parse_moment(text: str, now: datetime | None = None) -> str:
    """Return a time as it sorts: of a date, a date and time, or so many days ago (30d)."""
    if text.endswith("d") and text[:-1].isdigit() and len(text) < 7:
        ago = (now or datetime.now(UTC)) - timedelta(days=int(text[:-1]))
        return f"{ago:%Y-%m-%dT%H:%M:%S}"
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; write 2026-11-22, 2026-11-22T10:00 or 30d"
        ) from None
    time = time.astimezone(UTC) if time.tzinfo else time
    return f"{time:%Y-%m-%dT%H:%M:%S}"


def build_listing_result(history: History, runs: Sequence[KeptRun]) -> Result:
    """Return a row for each of these runs."""
    rows = [{name: run.row[name] for name in _OF_A_LIST} | _read_notes(run) for run in runs]
    facts = {"history": history.address, "files_failed": len(history.unread)}
    return Result(LABEL, pa.Table.from_pylist(rows, schema=RETURNS), facts)


def _read_notes(run: KeptRun) -> dict[str, str | None]:
    return {
        "tags": ", ".join(f"{k}={v}" for k, v in run.tags.items()) or None,
        "mark": run.remarks.mark or None,
        "added_at": run.remarks.added_at or None,
    }


def to_the_minute(answer: Result) -> Result:
    """Return the same runs with their times as people read them."""
    times = answer.table["recorded_at"].to_pylist()
    minutes = build_texts([time and time[:16].replace("T", " ") for time in times])
    return Result(
        answer.analysis, with_column(answer.table, "recorded_at", minutes), answer.coverage
    )
