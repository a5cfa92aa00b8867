"""What changed between two recordings, as every face answers it: the verdict first."""

import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.core.analysis import coverage_of
from htk.base.core.humanize import format_int_ranges
from htk.base.errors import MissingTable
from htk.base.mappings import Facts, Fields
from htk.traces.compare.items import EACH, By
from htk.traces.compare.runs import DIFF, RETURNS, compare_runs
from htk.traces.compare.tree_diff import DIFF_TREE, compare_trees
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.trace import Trace
from htk.verdicts.comparison.causes import ChangeCause
from htk.verdicts.comparison.compared import NOTHING_TOLD, ComparedWork, compare_work
from htk.verdicts.comparison.within import change_notes
from htk.verdicts.comparison.wording import (
    describe_cause,
    next_commands,
    rank_lines,
    write_headline,
)


def list_differences(
    base: Trace,
    new: Trace,
    by: tuple[By, ...] = EACH,
    n: int = 20,
    names: tuple[str, str] = ("BASE", "NEW"),
) -> Result:
    """Return the changes from `base` to `new`: causes of the step's change first, then by kind, `n`
    rows of each (0: all). `names`: what commands to ask next call the two."""
    kinds: tuple[By, ...] = by if "time" in by else ("time", *by)
    try:
        table = compare_runs(base.tables, new.tables, kinds, n)
    except MissingTable as error:  # what rows should stand for was not recorded
        raise base.with_recipe(error) from None
    facts = dict(coverage_of(table))
    work = compare_work(base.tables, new.tables)
    total = total_row(table) if facts.get("compared") == "a step" else None
    facts |= said_of(facts, total, work, names)
    notes = [*change_notes(base, "base"), *change_notes(new, "new recording")]
    facts["notes"] = [*facts.get("notes", []), *notes]
    rows = _cause_rows(work, total) if by == EACH else RETURNS.empty_table()
    shown = pa.concat_tables([rows, *(by_kind(table, kind) for kind in by)])
    return Result(DIFF, shown, describe_coverage(new, ("kernels",)) | facts)


def said_of(
    facts: Facts,
    total: Facts | None,
    work: ComparedWork = NOTHING_TOLD,
    names: tuple[str, str] = ("BASE", "NEW"),
) -> Fields:
    """Return what to say of a comparison before all tables."""
    verdict = write_headline(total, work)
    commands = next_commands(work.causes, *names)
    then = [f"look at next: {'; '.join(commands)}"] if commands else []
    lines = [*facts.get("unlike", []), verdict, *rank_lines(work), *then]
    return {"in_short": lines, "verdict": verdict, "next": commands}


def by_kind(table: pa.Table, kind: str) -> pa.Table:
    """Return the rows of one kind."""
    return table.filter(pa.array([value == kind for value in table["by"].to_pylist()], pa.bool_()))


def total_row(table: pa.Table) -> Facts | None:
    """Return the row of the whole step; None: there is none."""
    rows = by_kind(table, "time").to_pylist()
    return next((row for row in rows if row["name"] == "total"), None)


def _cause_rows(work: ComparedWork, total: Facts | None) -> pa.Table:
    """Return a row for each cause; its difference is its part of the step's."""
    step = float(total["base_ns"]) if total else 0.0
    rows = [_cause_row(cause, work, step) for cause in work.causes]
    table = pa.Table.from_pylist(rows, schema=RETURNS)
    return table if rows else RETURNS.empty_table()


def _cause_row(cause: ChangeCause, work: ComparedWork, step: float) -> Fields:
    return {
        "by": "cause",
        "name": describe_cause(cause, work),
        "ranks": format_int_ranges(cause.ranks),
        "change": "slower" if cause.change > 0 else "faster",
        "diff_ns": cause.part_ns,
        "diff_pct": 100 * cause.part_ns / step if step else None,
        "noise_ns": cause.noise_ns,
        "significant": True,
        "basis": "replayed" if cause.is_replayed else "recorded",
    }


def tree_differences(base: Trace, new: Trace, n: int = 20) -> Result:
    """Return where the call trees of one step of each differ, `n` places (0: all)."""
    for trace in (base, new):
        trace.need("cpu_ops")
    table = compare_trees(base.tables, new.tables, n)
    facts = describe_coverage(new, ("cpu_ops", "kernels")) | dict(coverage_of(table))
    return Result(DIFF_TREE, table, facts)
