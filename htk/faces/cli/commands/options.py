"""Options that several commands take; their names, meanings and defaults are the same in all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from htk.base.errors import UsageError

ranks_option = click.option("--ranks", help="Only these ranks, e.g. 0,2..5.")
steps_option = click.option("--steps", help="Only these profiler steps, e.g. 3..4 or first:2.")
cycles_option = click.option(
    "--cycles", help="Only these recordings of a rank that has several, counted from 0, e.g. 1."
)
align_option = click.option(
    "--align/--no-align",
    default=True,
    show_default=True,
    help="Align the clocks of all ranks.",
)
step_option = click.option(
    "--step", type=click.IntRange(min=0), help="Number of the step; by default the steadiest."
)
title_option = click.option("--title", help="Title; by default the name of the recording.")
folder_option = click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder to write to.",
)
price_option = click.option(
    "--price", type=float, help="Price of a GPU-hour, for the cost of a million tokens."
)
run_tokens_option = click.option(
    "--run-tokens", type=float, help="Tokens of the whole run, for its time and cost, e.g. 2e12."
)
tags_option = click.option(
    "--tags", multiple=True, metavar="NAME=VALUE,…", help="Tags of a run: commit=1a2b,model=llama."
)
store_of_history_option = click.option(
    "--store", help="Folder or URL of a history; by default HTK_HISTORY, else a folder of the user."
)

site_option = click.option(
    "--site",
    metavar="FILE",
    help="Figures of this site, by htk calibrate; by default the user's own. none: no site.",
)


_LAST = "Answer"  # the heading of what no section holds


class SectionedCommand(click.Command):
    """Prints its options under headings, as `group_options` put them there."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", _LAST), []).append(record)
        sections[_LAST] = sections.pop(_LAST)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def group_options(heading: str, *options: Callable[..., Any]) -> Any:
    """Return options that stand together under a heading of `--help`."""

    def decorate_group(decorated: Any) -> Any:
        for option in reversed(options):
            decorated = option(decorated)
            decorated.__click_params__[-1].section = heading
        return decorated

    return decorate_group


def port_option(default: int) -> Callable[..., Any]:
    """Return the option of where to listen."""
    return click.option(
        "--port", default=default, show_default=True, help="Port to listen on; 0 takes a free one."
    )


def list_format_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forms of a list that is no answer of an analysis."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Output format.",
    )(function)


def refuse_unused(needs: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError where an option is given without any of those that make use of it."""
    context = click.get_current_context()

    def is_given(name: str) -> bool:
        return context.get_parameter_source(name) is ParameterSource.COMMANDLINE

    for name, others in needs.items():
        if is_given(name) and not any(map(is_given, others)):
            options = {p.name: max(p.opts, key=len) for p in context.command.params}
            flags = [options[n] for n in (name, *others)]
            raise UsageError(f"{flags[0]} changes nothing without {' or '.join(flags[1:])}")
