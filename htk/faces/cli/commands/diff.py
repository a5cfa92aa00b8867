"""`htk diff`: two recordings, or two ranks, side by side; with limits, the gate of a CI."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from htk.base.core.whole_file import write_whole
from htk.base.errors import GateFailed
from htk.base.mappings import Facts, Fields
from htk.base.names.rows_by import WORDS
from htk.faces.cli.commands.common import print_line, trace_options
from htk.faces.cli.commands.options import store_of_history_option, tags_option

if TYPE_CHECKING:
    from htk.traces.compare.baseline import RecordedBaseline
    from htk.traces.compare.regression import Judgement
    from htk.traces.trace.trace import Trace
    from htk.verdicts.comparison.compared import ComparedWork

_GATE = ("min_abs", "run_noise", "fail_unjudged", "md", "junit")
_HISTORY = ("last_good", "store", "tags")


@click.command("diff")
@click.option(
    "--by",
    type=click.Choice(("all", "time", "comm", *WORDS)),
    default="all",
    show_default=True,
    help="What a row stands for: the usual kinds, or one.",
)
@click.option("--n", default=20, show_default=True, help="Rows to show of each kind; 0: all.")
@click.option("--base-ranks", help="Ranks of the base recording, e.g. 0,2..5.")
@click.option("--new-ranks", help="Ranks of the new recording.")
@click.option(
    "--fail-on",
    "rules",
    multiple=True,
    metavar="WHAT>LIMIT",
    help="Exit with 4 if a change exceeds this limit and the noise: step_time>5%, "
    "exposed_comm>2pp, kernel:flash_fwd>10%, 'each kernel>10%', 'least transfer>5%'. "
    "May be repeated.",
)
@click.option(
    "--min-abs", default="0", metavar="TIME", help="Smallest change per step that fails, e.g. 50us."
)
@click.option("--run-noise", type=float, help="Noise between runs, in %.  [0.3; host: 3]")
@click.option(
    "--fail-unjudged", is_flag=True, help="Also exit with 4 if noise leaves a rule undecided."
)
@click.option(
    "--md", type=click.Path(dir_okay=False), help="File to write the verdict to as Markdown."
)
@click.option(
    "--junit", type=click.Path(dir_okay=False), help="File to write the verdict to as JUnit XML."
)
@click.option(
    "--last-good",
    type=click.IntRange(min=1),
    metavar="N",
    help="Base: the last N runs of the history that were marked good; PATH is the new recording.",
)
@store_of_history_option
@tags_option
@trace_options
def command(
    paths: tuple[str, ...],
    by: str,
    n: int,
    base_ranks: str | None,
    new_ranks: str | None,
    rules: tuple[str, ...],
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """What changed between two recordings, or two ranks?

    PATHs are the base and the new recording; one path with --base-ranks and --new-ranks compares
    ranks of it. The base may be a file of `htk baseline`, or with --last-good the last good runs
    of a history. Times are per step, averaged over ranks and steps, and a change counts if it
    exceeds the noise between steps (or between the good runs).

    With --fail-on it is a gate: exit code 4 if a limit is exceeded by more than chance explains.
    """
    from htk.traces.compare.baseline import is_baseline

    gate = {name: arguments.pop(name) for name in _GATE}
    last_good, store, tags = (arguments.pop(name) for name in _HISTORY)
    if last_good is not None:
        pair = _good_runs(store, last_good, tags), (_take_only_path(paths, base_ranks), new_ranks)
        _by_baselines(pair, rules, gate, (by, n), (form, output, limit), arguments)
        return
    ranks_differ = base_ranks is not None and new_ranks is not None
    base_path, new_path = two_recordings("diff", paths, ranks_differ)
    sides = (base_path, base_ranks), (new_path, new_ranks)
    if rules or gate["md"] or gate["junit"] or is_baseline(base_path) or is_baseline(new_path):
        _by_baselines(sides, rules, gate, (by, n), (form, output, limit), arguments)
        return
    from htk.answers.output.render import write_result
    from htk.faces.cli.commands.common import open_narrowed
    from htk.traces.compare.items import kinds_called
    from htk.verdicts.comparison.differences import list_differences

    base, new = (
        open_narrowed((path,), arguments | {"ranks": ranks or arguments["ranks"]})
        for path, ranks in sides
    )
    answer = list_differences(base, new, kinds_called(by), n, (base_path, new_path))
    write_result(answer, form, output, limit=limit)
    _print_notes(answer.coverage)


def _by_baselines(
    sides: "tuple[RecordedBaseline | tuple[str, str | None], tuple[str, str | None]]",
    texts: tuple[str, ...],
    gate: Fields,
    chosen: tuple[str, int],
    writing: tuple[str, str | None, int],
    arguments: Fields,
) -> None:
    """Compare by what each recording's steps cost; judge where there are rules."""
    from htk.answers.output.render import write_result
    from htk.answers.output.result import Result
    from htk.base.core.analysis import coverage_of
    from htk.base.core.humanize import parse_duration
    from htk.traces.compare import regression
    from htk.traces.compare.gate_junit import render_junit
    from htk.traces.compare.gate_markdown import render_gate_markdown
    from htk.traces.compare.items import kinds_called
    from htk.traces.compare.rules import parse_rule
    from htk.traces.compare.runs import DIFF, list_cost_changes
    from htk.verdicts.comparison.differences import by_kind, said_of, total_row

    _check_judged(texts, gate)
    rules = [parse_rule(text) for text in texts]
    shown = kinds_called(chosen[0])
    kinds = tuple(dict.fromkeys(("time", *shown, *(r.kind for r in rules))))
    base, new = (_read_side(side, kinds, dict(arguments)) for side in sides)
    changed = list_cost_changes(
        base.costs, new.costs, tuple(dict.fromkeys(("time", *shown))), chosen[1]
    )
    facts = dict(coverage_of(changed))
    facts |= said_of(facts, total_row(changed), _find_causes(base, new), (base.path, new.path))
    limits = {"min_abs_ns": parse_duration(gate["min_abs"]), "run_noise_pct": gate["run_noise"]}
    judged = regression.judge_rules(base.costs, new.costs, rules, **limits)
    rows = changed if "time" in shown else by_kind(changed, chosen[0])
    table, label = (
        (regression.build_judgement_table(judged), regression.GATE) if rules else (rows, DIFF)
    )
    form, output, limit = writing
    write_result(Result(label, table, facts), form, output, limit=limit)
    if gate["md"]:
        _write_markdown(
            gate["md"], render_gate_markdown(judged, changed, facts, base.costs, new.costs)
        )
    if gate["junit"]:
        write_whole(gate["junit"], render_junit(judged, gate["fail_unjudged"]))
    _print_notes(facts)
    _enforce_gate(judged, gate["fail_unjudged"])


def _check_judged(rules: tuple[str, ...], gate: Fields) -> None:
    """Refuse what only rules decide, where there are none: nothing would ever fail."""
    asked = [f"--{name.replace('_', '-')}" for name in ("junit", "fail_unjudged") if gate[name]]
    if asked and not rules:
        raise click.UsageError(f"{asked[0]} needs a limit to judge: --fail-on 'step_time>5%'")


def _find_causes(base: "_Side", new: "_Side") -> "ComparedWork":
    """Return the causes of the change; none where a side is known by its costs alone."""
    from htk.verdicts.comparison.compared import NOTHING_TOLD, compare_work

    if base.trace is None or new.trace is None:
        return NOTHING_TOLD
    return compare_work(base.trace.tables, new.trace.tables)


def _print_notes(facts: Facts) -> None:
    """Print the notes that a reader must know, e.g. that a recording changed midway."""
    for note in facts.get("notes", []):
        print_line(f"htk: diff: {note}")


class _Side(NamedTuple):
    """One of the two that are compared."""

    path: str
    costs: "RecordedBaseline"
    trace: "Trace | None" = None


def _read_side(
    side: "RecordedBaseline | tuple[str, str | None]",
    kinds: tuple[Any, ...],
    arguments: Fields,
) -> _Side:
    """Return what one recording's steps cost, read from its file or its baseline's."""
    from htk.faces.cli.commands.common import open_narrowed
    from htk.traces.compare.baseline import (
        RecordedBaseline,
        build_cost_baseline,
        is_baseline,
        read_baseline,
    )

    if isinstance(side, RecordedBaseline):
        return _Side("BASE", side)
    path, ranks = side
    if is_baseline(path):
        return _Side(path, read_baseline(path))
    trace = open_narrowed((path,), arguments | {"ranks": ranks or arguments["ranks"]})
    return _Side(path, build_cost_baseline(trace.tables, kinds), trace)


def _good_runs(store: str | None, last_good: int, tags: tuple[str, ...]) -> "RecordedBaseline":
    """Return the last good runs of a history as one base; says which they are."""
    from htk.verdicts.history.archive import opened_history
    from htk.verdicts.history.good_runs import last_good as of_history
    from htk.verdicts.history.notes import parse_tags

    good = of_history(opened_history(store), last_good, parse_tags(tags))
    names = ", ".join(f"{run.run[:8]} ({run.row['name']})" for run in good.runs)
    for line in (f"base: {names}", *good.notes):
        print_line(f"htk: diff: {line}")
    return good.base


def _take_only_path(paths: tuple[str, ...], base_ranks: str | None) -> str:
    """Return the new recording, where the base is of a history."""
    if len(paths) == 1 and base_ranks is None:
        return paths[0]
    raise click.UsageError("--last-good takes one recording: htk diff --last-good 5 NEW")


def _write_markdown(path: str, text: str) -> None:
    """Write the summary; append to that of a GitHub job, one file that all its steps add to."""
    mode = "a" if path == os.environ.get("GITHUB_STEP_SUMMARY") else "w"
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)


def _enforce_gate(judged: "list[Judgement]", strictly: bool) -> None:
    bad = [j for j in judged if j.verdict == "failed" or (strictly and j.verdict != "passed")]
    if bad:
        raise GateFailed("gate: " + "; ".join(f"{j.rule.text}: {j.reason}" for j in bad))
    for j in judged:
        if j.verdict != "passed":
            print_line(f"htk: gate: {j.rule.text}: {j.verdict}: {j.reason}")


def two_recordings(command: str, paths: tuple[str, ...], ranks_differ: bool) -> tuple[str, str]:
    """Return the base and the new recording."""
    if len(paths) == 2:
        return paths[0], paths[1]
    if len(paths) == 1 and ranks_differ:
        return paths[0], paths[0]
    raise click.UsageError(
        f"{command} compares two recordings: htk {command} BASE NEW; or two ranks of one: "
        f"htk {command} PATH --base-ranks 0 --new-ranks 7"
    )
