"""`htk verify`: is this number right?"""

from typing import TYPE_CHECKING, Any

import click

from htk.base.core.whole_file import write_whole
from htk.faces.cli.commands.common import opening_options, writing_options

if TYPE_CHECKING:
    from htk.verdicts.verify.outcome import Outcome
    from htk.verdicts.verify.subject import Subject

_FAILED = 4  # as where a gate failed


@click.command("verify")
@opening_options
@click.option(
    "--quick",
    is_flag=True,
    help="Only compare answers with one another: no second reading, nothing opened again.",
)
@click.option(
    "--largest",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Largest file that is read a second time, uncompressed, in MiB.",
)
@writing_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    quick: bool,
    largest: int,
    form: str,
    output: str | None,
    limit: int,
    **opening: Any,
) -> None:
    """Is this number right? Recompute what htk answers, by other means.

    A second reading of each profiler trace (plain JSON and whole numbers, none of htk's tables)
    is compared with the answers, the answers with one another, and the files with themselves
    opened alone, without the cache, by the engine in Python, and merged. One line per check; exit
    code 4 if one fails.
    """
    from htk.base.core.defer_imports import spare_pandas
    from htk.faces.cli.commands.common import open_options, split_inputs
    from htk.verdicts.verify.subject import Subject

    spare_pandas()
    subject = Subject(split_inputs(paths), open_options(opening), largest << 20, quick)
    results = (
        _print_checks(subject, output)
        if form == "table"
        else _write_for_machines(subject, form, output, limit)
    )
    if any(outcome.tally.different for outcome in results):
        ctx.exit(_FAILED)


def _print_checks(subject: "Subject", output: str | None) -> "list[Outcome]":
    """Print each check when it is done."""
    from htk.verdicts.verify.outcome import all_checks, list_outcomes, summarise_outcomes

    width = max(len(check.name) for check in all_checks())
    subject.open()  # what cannot be opened fails before anything is printed
    results = []
    lines = []
    for outcome in list_outcomes(subject):
        results.append(outcome)
        name = f"{outcome.check.name:<{width}}"
        lines.append(f"{outcome.state:<14}  {name}  {outcome.check.compared}: {outcome.finding}")
        if output is None:
            click.echo(lines[-1])
    last = summarise_outcomes(results, subject.trace)
    if output is None:
        click.echo(last)
    else:
        write_whole(output, "\n".join([*lines, last, ""]))
    return results


def _write_for_machines(
    subject: "Subject", form: str, output: str | None, limit: int
) -> "list[Outcome]":
    from htk.answers.output.render import write_result
    from htk.answers.output.result import Result
    from htk.traces.trace.coverage import describe_coverage
    from htk.verdicts.verify.outcome import as_table, list_outcomes, verify

    results = list(list_outcomes(subject))
    answer = Result(verify.label, as_table(results), describe_coverage(subject.trace, ()))
    write_result(answer, form, output, limit=limit)
    return results
