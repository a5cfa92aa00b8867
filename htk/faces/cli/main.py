"""The command line: fixed commands, and one derived from each analysis."""

import errno
import sys
import types
import typing
from typing import Any

import click

from htk.analyses import ANALYSES
from htk.base.core.humanize import command_name, make_visible
from htk.base.errors import AnalysisError, HtkError, UsageError
from htk.faces.cli.commands import COMMANDS, GROUPS, load_command

# Everything heavier is imported when a command runs: `htk --help` prints a menu, no more.


_SAID_OTHERWISE = {
    "compare": "two recordings are compared by htk diff BASE NEW",
    "gate": "a gate is htk diff BASE NEW --fail-on 'step_time>5%'",
}


class LazyGroup(click.Group):
    """Commands by name, with hyphens or underscores; a module is imported when its command is."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of that name, or what may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0].replace("_", "-"), self.list_commands(ctx), 3)
            search = f"htk help {make_visible(args[0])} finds it in commands, questions and columns"
            hint = f"did you mean {', '.join(near)}?" if near else search
            hint = _SAID_OTHERWISE.get(args[0], hint)
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *map(command_name, sorted(ANALYSES))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        fixed = cmd_name.replace("_", "-")
        if fixed in COMMANDS:
            return load_command(fixed)
        analysis = cmd_name.replace("-", "_")
        return analysis_command(analysis) if analysis in ANALYSES else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([*commands.items()])
        subjects: dict[str, list[tuple[str, str]]] = {}
        for name, entry in sorted(ANALYSES.items()):
            subjects.setdefault(entry.subject, []).append((command_name(name), entry.question))
        for subject, rows in subjects.items():
            with formatter.section(f"Questions: {subject}"):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--version", is_flag=True, help="Show the version (with --verbose: of everything).")
@click.option("--verbose", is_flag=True, help="With --version: engine, cache folder, packages.")
@click.pass_context
def htk(ctx: click.Context, version: bool, verbose: bool) -> None:
    """Where did the time go? Profiling and trace analysis for many GPUs.

    PATHs are trace files, folders, globs, archives or URLs; the word `sample` opens a set that
    comes with htk.
    """
    if version:
        from htk.faces.cli.commands.version import show_version

        show_version(verbose)
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


# A disk that is full or ill, whatever was to be written to it.
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def run_command_line(argv: list[str]) -> int:
    """Run a command; errors become one line and a documented exit code."""
    output = sys.stdout
    try:
        outcome = htk.main(argv, prog_name="htk", standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("htk: stopped\n")
        return 130
    except BrokenPipeError:  # the reader of our output had enough
        sys.stdout = None
        return 0
    except SystemExit:
        if sys.stdout is output:  # click wraps it and ends with 1 where the reader had enough
            raise
        sys.stdout = None
        return 0
    except HtkError as error:
        sys.stderr.write(f"htk: {make_visible(str(error))}\n")
        return error.exit_code
    except MemoryError:
        return _too_little_memory()
    except RuntimeError as error:
        return _too_little_memory() if "start new thread" in str(error) else _our_fault(error)
    except OSError as error:
        if error.filename is None and error.errno not in _OF_DISKS:
            return _our_fault(error)
        what = error.filename or "what was to be written is not whole"
        sys.stderr.write(make_visible(f"htk: {what}: {error.strerror}") + "\n")
        return UsageError.exit_code
    except Exception as error:
        return _our_fault(error)


def _too_little_memory() -> int:
    """Return that a limit of the system was met, after what was asked could be read."""
    sys.stderr.write(
        "htk: this needs more memory, or more threads, than the system gives (ulimit -v, -u; a "
        "container's limit); ask about fewer ranks or steps (--ranks, --steps), or with --memory "
        "where the command takes it\n"
    )
    return AnalysisError.exit_code


def _our_fault(error: Exception) -> int:
    """Return a bug of ours: one line, and how to see more."""
    import os

    if os.environ.get("HTK_TRACEBACK"):
        raise error

    what = make_visible(" ".join(str(error).split())[:300])
    sys.stderr.write(
        f"htk: internal error: {type(error).__name__}: {what}; this is a bug in htk "
        "(HTK_TRACEBACK=1 shows where)\n"
    )
    return 1


def analysis_command(name: str) -> click.Command:
    """Return the command of an analysis: its question, its options, and the common ones."""
    from htk.analyses import find_analysis
    from htk.faces.cli.commands import common
    from htk.traces.trace.cut import OF_ACTIVITIES

    analysis = find_analysis(name)
    own = [_build_flag(option) for option in analysis.options.values()]

    def answer_command(paths: tuple[str, ...], **arguments: Any) -> None:
        common.run_analysis(analysis, paths, arguments)

    function = common.working_options(answer_command)
    at_once = [read for read in analysis.reads if read not in analysis.later]
    if at_once and OF_ACTIVITIES.issuperset(at_once):
        function = common.activity_options(function)
    command = click.command(command_name(name), help=analysis.doc)(common.trace_options(function))
    if name == "recommendations":
        own.append(click.Option(["--against"], metavar="PATH", help=_AGAINST))
    command.params = (
        [p for p in command.params if p.name == "paths"]
        + own
        + [p for p in command.params if p.name != "paths"]
    )
    return command


_AGAINST = "Another recording: first name what became slower since, as htk diff does."


def _build_flag(option: Any) -> click.Option:
    kind, multiple, nullable = _click_type(option.type)
    flag = f"--{option.name.replace('_', '-')}"
    if kind is bool:
        return click.Option(
            [f"{flag}/--no-{flag[2:]}"], default=option.default, help=option.doc, show_default=True
        )
    return click.Option(
        [flag, f"--{option.name}"] if "_" in option.name else [flag],
        type=_build_natural_type(kind, option.default),
        default=option.default,
        multiple=multiple,
        help=option.doc,
        show_default=not nullable,
    )


def _build_natural_type(kind: Any, default: Any) -> Any:
    """Counts are not negative: none of an analysis's whole numbers is, unless its default is."""
    return click.IntRange(min=0) if kind is int and (default or 0) >= 0 else kind


def _click_type(hint: Any) -> tuple[Any, bool, bool]:
    """(click type, given several times, may be none)."""
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = next(i for i in inner if i is not type(None))
        kind, multiple, _ = _click_type(kept)
        return kind, multiple, True
    if origin is typing.Literal:
        return click.Choice([str(i) for i in inner]), False, False
    if origin is tuple:
        return inner[0], True, False
    return hint, False, False
