"""What the first screen shows of a server: its iterations, in place of steps."""

from typing import Any

from htk.answers.output.result import Result
from htk.base.core.humanize import format_duration
from htk.dashboard.components import draw_tile
from htk.dashboard.grids import draw_grid
from htk.dashboard.page import Visit
from htk.verdicts.overview.summary import Verdict

_COLUMNS = ("phase", "batch_from", "batch_to", "iterations", "elapsed_ns_p50", "elapsed_ns_p99")


def parted_headline(headline: str) -> tuple[str, list[str]]:
    """Return what iterations do and how long they take, and apart from it the rest."""
    sizes, times, *rest = headline.split("; ")
    return f"{sizes}; {times}", rest


def iteration_tile(visit: Visit) -> Any:
    """Return how long an iteration takes, of the phase that takes most of the time."""
    rows = visit.ask("iteration_times", by="phase").to_pylist()
    costliest = max(rows, key=lambda row: row["iterations"] * row["elapsed_ns_p50"])
    count = costliest["iterations"]
    slowest = format_duration(costliest["elapsed_ns_p99"])
    more = f"median of {count:,}, p99 {slowest}" if count > 1 else "one was recorded"
    median = format_duration(costliest["elapsed_ns_p50"])
    label = f"{costliest['phase']} iteration".capitalize()
    return draw_tile(label, median, more, visit.view.link("iteration_times"))


def iteration_grid(visit: Visit) -> Any:
    """Return the iterations by phase, batch and context."""
    return draw_grid(visit.ask("iteration_times"), visit, {}, rows=9, only=_COLUMNS)


def mfu_of_ranks(result: Result, verdict: Verdict) -> list[float]:
    """Return the MFU of each rank, in %: of a server's, over its iterations alone, since waits for
    work that was not recorded tell nothing of it."""
    rows = [row for row in result.to_pylist() if row["mfu_pct"] is not None]
    if not verdict.served:
        return [row["mfu_pct"] for row in rows]
    return [row["mfu_pct"] * row["window_ns"] / verdict.total_ns for row in rows]
