"""What commands share: the options that open and narrow a trace, progress, and asking."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from htk.answers.ask import ask_trace
from htk.answers.output.render import FORMATS, RAW_CSV, form_by_name, write_result
from htk.base.core.analysis import Analysis
from htk.base.core.defer_imports import spare_pandas
from htk.base.core.humanize import make_visible, parse_duration, parse_int_ranges
from htk.base.core.whole_file import write_whole
from htk.base.errors import UsageError
from htk.base.io.spill import why_arrays_stay
from htk.base.mappings import Facts, Fields
from htk.base.spread.mapper import ON
from htk.base.spread.memory import parse_bytes
from htk.faces.cli.commands.options import cycles_option, ranks_option, steps_option
from htk.traces.trace.opening import Inputs, OpenOptions, Progress, open_trace
from htk.traces.trace.trace import Trace


def _use_gpus(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Add a file of GPUs to the catalogue while the command runs, in its worker processes too."""
    if path is None:
        return
    from htk.physics.hardware import OWN_FILE, load_catalogue

    load_catalogue(path)  # a file that cannot be read is an error now
    _set_variable(ctx, OWN_FILE, path)


def _use_store_key(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Read stores by the key in a file while the command runs."""
    if path is not None:
        from htk.base.io.store_key import VARIABLE

        _set_variable(ctx, VARIABLE, path)


def _set_variable(ctx: click.Context, name: str, value: str) -> None:
    """Set a variable of the environment while a command runs, in its worker processes too."""
    before = os.environ.get(name)
    os.environ[name] = value

    def restore_setting() -> None:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before

    ctx.call_on_close(restore_setting)


gpu_file_option = click.option(
    "--gpu-file",
    type=click.Path(dir_okay=False),
    callback=_use_gpus,
    expose_value=False,
    is_eager=True,  # before options that name one of its GPUs
    help="TOML file of GPUs to add to the hardware catalogue, e.g. my.toml.",
)
store_key_option = click.option(
    "--store-key",
    metavar="FILE",
    callback=_use_store_key,
    expose_value=False,
    help="Key of a store that htk map made elsewhere. none: use a store whoever wrote it.",
)
_PATHS = click.argument("paths", nargs=-1, required=True, metavar="PATH…")
_UNKNOWN_ARGUMENTS = click.option(
    "--keep-unknown-arguments",
    is_flag=True,
    help="Keep event arguments that no table has a column for.",
)
_OVERRUNS = click.option(
    "--keep-overruns",
    is_flag=True,
    help="Keep GPU activities that last over those that follow on their stream; else they are cut.",
)
_TIME_UNIT = click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="Unit of operation-level rows that do not name one.",
)
# What decides what a file's tables hold; the others say how a recording is made of files.
_PARSING = (_PATHS, store_key_option, _UNKNOWN_ARGUMENTS, _OVERRUNS, _TIME_UNIT)
_OPENING = (
    _PATHS,
    gpu_file_option,
    store_key_option,
    click.option(
        "--no-cache", is_flag=True, help="Parse the files again and store nothing on disk."
    ),
    click.option(
        "--cache-by-content",
        is_flag=True,
        help="Name cache entries by a hash of the bytes, not by size and time.",
    ),
    _UNKNOWN_ARGUMENTS,
    _OVERRUNS,
    click.option(
        "--strict", is_flag=True, help="Fail where a file is damaged, unread or incomplete."
    ),
    click.option("--rank", type=int, help="Rank of a single file that does not name its own."),
    click.option(
        "--rank-pattern", help="Regular expression whose group finds the rank in file names."
    ),
    click.option("--job", metavar="NAME", help="One of several jobs whose files lie together."),
    _TIME_UNIT,
)
_WORKING = (
    click.option(
        "--on",
        type=click.Choice(ON),
        help="Where files are read and ranks processed; by default on threads.",
    ),
    click.option(
        "--memory",
        "memory_bytes",
        metavar="SIZE",
        callback=lambda _, __, size: None if size is None else parse_bytes(size),
        help="Memory for answers by rank, e.g. 4GB; by default half of what is free.",
    ),
)
_NARROWING = (
    ranks_option,
    steps_option,
    cycles_option,
    click.option(
        "--from",
        "from_",
        metavar="TIME",
        help="Start of the time window, from the recording's start, e.g. 1.5ms.",
    ),
    click.option("--to", metavar="TIME", help="End of the time window, e.g. 20ms."),
    click.option(
        "--annotation", metavar="REGEX", help="Only inside user ranges whose name matches."
    ),
)
_CHOOSING_ACTIVITIES = (
    click.option("--name", metavar="REGEX", help="Only GPU activities whose name matches."),
    click.option("--streams", help="Only GPU activities of these streams, e.g. 7,20..23."),
)


def raw_option() -> Callable[..., Any]:
    """Return the option that leaves texts in CSV as they are (see `_choose_format`)."""
    return click.option(
        "--raw",
        is_flag=True,
        is_eager=True,  # before the option that says which form
        expose_value=False,
        callback=lambda ctx, _, raw: ctx.meta.__setitem__(_RAW, raw),
        help="Write text to CSV unchanged, even where a spreadsheet would run it as a formula.",
    )


_RAW = "htk.raw"


def is_raw(ctx: click.Context) -> bool:
    """Return whether --raw was given."""
    return bool(ctx.meta.get(_RAW))


def _choose_format(ctx: click.Context, form: str | None) -> str:
    form = form or form_by_name(ctx.params.get("output"))
    if not is_raw(ctx):
        return form
    if form != "csv":
        raise UsageError(f"--raw is for --format csv; {form} holds texts as they are")
    return RAW_CSV


def _format_option(*more: str) -> Callable[..., Any]:
    return click.option(
        "--format",
        "form",
        type=click.Choice([*FORMATS, *more]),
        metavar="FORMAT",
        callback=lambda ctx, _, form: _choose_format(ctx, form),
        help=f"Output format: {', '.join([*FORMATS, *more])}; by default that of -o's ending, "
        "else table.",
    )


OPENMETRICS = "openmetrics"
_WRITING = (
    raw_option(),
    _format_option(),
    click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False),
        is_eager=True,  # before --format, which looks at it
        help="File to write to.",
    ),
    click.option(
        "--limit",
        type=click.IntRange(1, 10**9),
        default=200,
        show_default=True,
        help="Maximum rows of a table for people.",
    ),
)


def print_line(line: str, *, err: bool = True) -> None:
    """Print one line about names of files or from files: nothing in them steers a terminal."""
    click.echo(make_visible(line), err=err)


def opening_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return _apply_options(function, _OPENING)


def storing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what to parse and how, for a command that keeps the tables and asks nothing."""
    return _apply_options(function, _PARSING)


def parsing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return how to open, for a command that says itself what."""
    return _apply_options(function, _OPENING[1:])


def activity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return how to choose GPU activities, for what speaks of nothing else."""
    return _apply_options(function, _CHOOSING_ACTIVITIES)


def narrowing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return _apply_options(function, _NARROWING)


def writing_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return _apply_options(function, _WRITING)


_METERED = (_WRITING[0], _format_option(OPENMETRICS), *_WRITING[2:])


def metered_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return how to write what can be a number to alert on, too."""
    return _apply_options(function, _METERED)


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return everything that a question to a trace may be given."""
    return _apply_options(function, _OPENING + _NARROWING + _WRITING)


def working_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return who answers a question, and in how much memory."""
    return _apply_options(function, _WORKING)


def name_run(paths: Sequence[str]) -> str:
    """Return how a recording is called that lies there: by its file or folder."""
    first = paths[0].rstrip("/")
    if first == "sample" or "://" in first:
        return first.rsplit("/", 1)[-1]
    return Path(first).resolve().name


def write_text(text: str, output: str | None) -> None:
    """Write lines to a file, or show them."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)


def split_inputs(paths: Sequence[str]) -> Inputs:
    """Return what a command was given: one name may be `sample`, several are files and folders."""
    return paths[0] if len(paths) == 1 else list(paths)


def open_options(arguments: Facts) -> OpenOptions:
    """Return how a command was told to open."""
    return OpenOptions(
        cache=not arguments["no_cache"],
        strict=arguments["strict"],
        rank=arguments["rank"],
        rank_pattern=arguments["rank_pattern"],
        job=arguments["job"],
        keep_unknown_arguments=arguments["keep_unknown_arguments"],
        keep_overruns=arguments["keep_overruns"],
        cache_by_content=arguments["cache_by_content"],
        time_unit=arguments["time_unit"],
        confined=arguments.get("confined", False),
        on=arguments.get("on"),
        memory_bytes=arguments.get("memory_bytes"),
    )


def open_narrowed(paths: Sequence[str], arguments: Facts) -> Trace:
    """Open and narrow the trace that a command was given."""
    spare_pandas()
    no_folder = "--no-cache leaves no folder for the rest" if arguments["no_cache"] else None
    if arguments.get("memory_bytes") and (why := no_folder or why_arrays_stay()):
        print_line(f"htk: --memory bounds questions by rank and the critical path alone: {why}")
    progress = _Bar() if sys.stderr.isatty() else Progress()
    trace = open_trace(split_inputs(paths), replace(open_options(arguments), progress=progress))
    for name, why in trace.failed:
        line = f"htk: left out {name}: {why.removeprefix(f'{name}: ')}"
        print_line(line)
    ranks = None if (text := arguments.get("ranks")) is None else parse_int_ranges(text)
    cycles = None if (text := arguments.get("cycles")) is None else parse_int_ranges(text)
    streams = None if (text := arguments.get("streams")) is None else parse_int_ranges(text)
    from_ = arguments.get("from_")
    to = arguments.get("to")
    from_ns = None if from_ is None else parse_duration(from_)
    to_ns = None if to is None else parse_duration(to)
    chosen = trace.sel(
        ranks=ranks,
        steps=arguments.get("steps"),
        from_ns=from_ns,
        to_ns=to_ns,
        annotation=arguments.get("annotation"),
        cycles=cycles,
        name=arguments.get("name"),
        streams=streams,
    )
    chosen.check_selection()
    return chosen


def run_analysis(analysis: Analysis[...], paths: Sequence[str], arguments: Fields) -> None:
    """Run an analysis on what a command was given and write the answer."""
    form = arguments.pop("form")
    output = arguments.pop("output")
    limit = arguments.pop("limit")
    against = arguments.pop("against", None)
    trace = open_narrowed(paths, arguments)
    options = {k: v for k, v in arguments.items() if k in analysis.options}
    with show_progress():
        if against is None:
            answer = ask_trace(trace, analysis.name, **options)
        else:
            from htk.verdicts.comparison.against import recommendations_against

            answer = recommendations_against(trace, open_narrowed((against,), arguments), **options)
    write_result(answer, form, output, limit=limit)


@contextmanager
def show_progress(what: str = "working it out") -> Iterator[None]:
    """A sign of life on a terminal, while an answer is made."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


class _Bar(Progress):
    """A bar of bytes read, on a terminal."""

    def start(self, files: int, stored_bytes: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[ready]}/{task.fields[files]} files"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=stored_bytes or None, files=files, ready=0)
        self._ready = 0
        self._bar.start()

    def advance(self, stored_bytes: int) -> None:
        self._bar.advance(self._task, stored_bytes)

    def done(self, file: str) -> None:
        self._ready += 1
        self._bar.update(self._task, ready=self._ready)

    def stop(self) -> None:
        self._bar.stop()


def _apply_options(
    function: Callable[..., Any], options: tuple[Callable[..., Any], ...]
) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function
