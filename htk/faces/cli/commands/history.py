"""`htk history`: the runs of a team over time, which were good, and what changed since when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_duration, make_visible
from htk.base.errors import TraceError, UsageError
from htk.faces.cli.commands.common import (
    OPENMETRICS,
    metered_options,
    opening_options,
    print_line,
    write_text,
    writing_options,
)
from htk.faces.cli.commands.options import store_of_history_option, tags_option

if TYPE_CHECKING:
    from htk.verdicts.history.archive import History
    from htk.verdicts.history.changes import RunSeries
    from htk.verdicts.history.listing import Wanted

_METRICS = (
    "step_time",
    "mfu",
    "exposed_comm",
    "slowdown",
)  # as htk.verdicts.history.changes has them
_SERIES = click.option(
    "--series",
    "series_tags",
    default="model",
    show_default=True,
    metavar="TAG,…",
    help="Tags that runs must share to be compared.",
)


@click.group("history", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """How do runs compare over time, and when did they change?

    A history is a folder or bucket with the facts of many runs. Without a command: list them.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, form="table")


@command.command("add")
@opening_options
@store_of_history_option
@tags_option
@click.pass_context
def add(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    store: str | None,
    tags: tuple[str, ...],
    **arguments: Any,
) -> None:
    """Add a recording to the history; all PATHs together are one run.

    A recording that is added again is the same run; new tags are added to the old ones.
    """
    from htk.faces.cli.commands.common import name_run, open_narrowed
    from htk.verdicts.history.archive import History
    from htk.verdicts.history.notes import parse_tags
    from htk.verdicts.history.run_facts import run_facts

    wanted = parse_tags(tags)
    trace = open_narrowed(paths, arguments)
    name = name_run(paths)
    facts = run_facts(trace, name)
    history = History(store)
    is_new = history.add(facts, wanted)
    step = format_duration(facts.row["step_time_ns"])
    words = "added" if is_new else "was there, brought up to date"
    print_line(f"{facts.run}  {name}: step {step}, {words} ({history.address})", err=False)
    if trace.failed:
        ctx.exit(TraceError.exit_code)


@command.command("list")
@store_of_history_option
@tags_option
@click.option(
    "--since", metavar="TIME", help="Only runs since this time, UTC: 2026-11-01, or days ago: 30d."
)
@click.option("--before", metavar="TIME", help="Only runs before this time, UTC: 2026-11-22T10:00.")
@click.option("--marked", type=click.Choice(["good", "bad"]), help="Only runs with this mark.")
@_SERIES
@metered_options
def list_(
    store: str | None = None,
    tags: tuple[str, ...] = (),
    since: str | None = None,
    before: str | None = None,
    marked: str | None = None,
    series_tags: str = "model",
    form: str = "table",
    output: str | None = None,
    limit: int = 200,
) -> None:
    """List runs, with a sparkline of each metric and where it changed."""
    from htk.answers.output.render import write_result
    from htk.verdicts.history.archive import opened_history
    from htk.verdicts.history.listing import build_listing_result

    history = opened_history(store)
    wanted = _build_wanted(tags, since, before, marked)
    runs = wanted.chosen(history.runs)
    if form == OPENMETRICS:
        from htk.verdicts.history.openmetrics import newest_runs, write_openmetrics

        write_text(write_openmetrics(newest_runs(history, runs)), output)
        _say_unread(history)
        return
    answer = build_listing_result(history, runs)
    tried = _list_tried_series(runs, series_tags)

    def print_for_people(file: Any) -> None:
        _print_runs(answer, tried, limit, file)

    write_result(answer, form, output, limit=limit, printer=print_for_people)
    _say_unread(history)


@command.command("changes")
@store_of_history_option
@tags_option
@click.option(
    "--since", metavar="TIME", help="Only runs since this time, UTC: 2026-11-01, or days ago: 30d."
)
@click.option("--before", metavar="TIME", help="Only runs before this time, UTC: 2026-11-22T10:00.")
@_SERIES
@writing_options
def changes_(
    store: str | None,
    tags: tuple[str, ...],
    since: str | None,
    before: str | None,
    series_tags: str,
    form: str,
    output: str | None,
    limit: int,
) -> None:
    """Since which run does a step take longer, use less of the GPU, or communicate more?"""
    from htk.answers.output.render import write_result
    from htk.verdicts.history.archive import opened_history
    from htk.verdicts.history.changes import build_changes_result, find_changes
    from htk.verdicts.history.wording import change_in_words

    history = opened_history(store)
    runs = _build_wanted(tags, since, before, None).chosen(history.runs)
    tried = _list_tried_series(runs, series_tags)
    changed = find_changes(tried)

    def print_for_people(file: Any) -> None:
        lines = [change_in_words(change) for change in changed] or [_explain_no_change(tried)]
        file.write("\n".join(map(make_visible, lines)) + "\n")

    write_result(
        build_changes_result(changed, tried), form, output, limit=limit, printer=print_for_people
    )
    _say_unread(history)


@command.command("mark")
@click.argument("run")
@store_of_history_option
@click.option("--good", "mark", flag_value="good", help="The run may be the base of a gate.")
@click.option("--bad", "mark", flag_value="bad", help="The run may not be the base of a gate.")
@tags_option
def mark_(run: str, store: str | None, mark: Any, tags: tuple[str, ...]) -> None:
    """Mark a run as good or bad, or tag it.

    RUN is a name from `htk history list`, the beginning of one, or the name of a folder.
    """
    from htk.verdicts.history.archive import opened_history
    from htk.verdicts.history.notes import parse_tags

    wanted = parse_tags(tags)
    if not mark and not wanted:
        raise UsageError("say --good, --bad or --tags commit=1a2b")
    history = opened_history(store)
    chosen = history.find(run)
    history.mark(chosen.run, mark or "", wanted)
    words = [f"is {mark}"] * bool(mark) + [f"has {k}={v}" for k, v in wanted.items()]
    print_line(f"{chosen.run}  {chosen.row['name']}: {', '.join(words)}", err=False)


@command.command("compare")
@click.argument("base")
@click.argument("new")
@store_of_history_option
@click.option("--n", default=20, show_default=True, help="Rows to show of each kind; 0: all.")
@writing_options
def compare(
    base: str, new: str, store: str | None, n: int, form: str, output: str | None, limit: int
) -> None:
    """What changed between two runs of the history? As `htk diff`, without their recordings."""
    from htk.answers.output.render import write_result
    from htk.answers.output.result import Result
    from htk.base.core.analysis import coverage_of
    from htk.traces.compare.items import EACH
    from htk.traces.compare.runs import DIFF, list_cost_changes
    from htk.verdicts.history.archive import opened_history

    history = opened_history(store)
    sides = [history.costs(history.find(name).run) for name in (base, new)]
    if not all(side.steps for side in sides):
        raise UsageError("only runs with profiled steps can be compared step by step")
    table = list_cost_changes(sides[0], sides[1], EACH, n)
    write_result(Result(DIFF, table, dict(coverage_of(table))), form, output, limit=limit)


def _build_wanted(
    tags: Sequence[str], since: str | None, before: str | None, mark: Any
) -> "Wanted":
    from htk.verdicts.history.listing import Wanted, parse_moment
    from htk.verdicts.history.notes import parse_tags

    return Wanted(
        parse_tags(tags),
        parse_moment(since) if since else "",
        parse_moment(before) if before else "",
        mark or "",
    )


def _list_tried_series(runs: Sequence[Any], series_tags: str) -> "list[RunSeries]":
    from htk.verdicts.history.changes import series_of

    by_tags = [tag.strip() for tag in series_tags.split(",") if tag.strip()]
    return [each for metric in _METRICS for each in series_of(runs, by_tags, metric)]


def _print_runs(answer: Any, tried: "list[RunSeries]", limit: int, file: Any) -> None:
    from htk.answers.output.render import print_table
    from htk.answers.output.result import Result
    from htk.verdicts.history.changes import find_changes
    from htk.verdicts.history.listing import to_the_minute
    from htk.verdicts.history.wording import change_in_words

    table = to_the_minute(answer).table.select(_select_shown_columns(answer))
    print_table(Result(answer.analysis, table, answer.coverage), limit=limit, file=file)
    lines = [_draw_line(series) for series in tried if len(series.runs) > 1]
    lines += [change_in_words(change) for change in find_changes(tried)]
    if lines:
        file.write("\n" + "\n".join(map(make_visible, lines)) + "\n")


_ON_A_SCREEN = (
    "run", "recorded_at", "name", "tags", "mark", "rank_count", "step_time_ns", "exposed_comm_ns",
    "mfu_pct", "slowdown",
)  # fmt: skip


def _select_shown_columns(answer: Any) -> list[str]:
    held = answer.table
    return [n for n in _ON_A_SCREEN if n in ("run", "name") or held[n].null_count < len(held)]


def _draw_line(series: "RunSeries") -> str:
    """Return a metric over the runs of a series, a character each (of the last 60)."""
    from htk.answers.output.sparkline import draw_sparkline
    from htk.verdicts.history.wording import metric_value

    values = series.values[-60:].tolist()
    low = metric_value(series.metric, min(values))
    high = metric_value(series.metric, max(values))
    words = series.metric.replace("_", " ")
    return f"{words:<13} {draw_sparkline(values)}  {low} … {high}  ({series.name})"


def _explain_no_change(tried: "list[RunSeries]") -> str:
    from htk.verdicts.history.changes import LEAST_RUNS

    if long := sum(len(series.runs) >= LEAST_RUNS for series in tried):
        return f"nothing changed by more than chance, in {long} series"
    return f"a change needs {LEAST_RUNS} runs of one kind at least"


def _say_unread(history: "History") -> None:
    for name, why in history.unread[:20]:
        print_line(f"htk: left out {name}: {why}")
