"""`htk sql`: one query, or a prompt."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.faces.cli.commands.common import activity_options, print_line, trace_options

_HELP = """.tables         what can be read
.columns NAME   its columns and what they mean
.macros         the interval macros
.quit           leave
Anything else is SQL and ends with ;"""


@click.command("sql")
@click.option(
    "--file", "-f", "script", type=click.Path(dir_okay=False), help="File of the query; - is stdin."
)
@click.option(
    "--param",
    "params",
    multiple=True,
    help="Value of a parameter: of $name as name=value, of each ? in their order.",
)
@click.option("--seconds", default=60.0, show_default=True, help="Time limit of the query.")
@click.option("--memory", default="4GB", show_default=True, help="Memory limit of the query.")
@trace_options
@activity_options
def command(
    paths: tuple[str, ...],
    script: str | None,
    params: tuple[str, ...],
    seconds: float,
    memory: str,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """Ask in SQL: htk sql PATH "select …". Without a query: a prompt.

    Tables of the vocabulary and every analysis are there by name, analyses also with options:
    kernel_top(n := 3). union_spans, overlap_spans, exposed_spans and busy work on intervals. PATH
    may be a folder that `htk convert --format parquet` wrote.
    """
    from htk.answers.output.render import write_result
    from htk.verdicts.query.worker import Limits

    paths, text = _split_query(paths, script)
    if text is not None and text.startswith("."):
        _run_meta_command(text)
        return
    ask = _build_asker(paths, arguments, Limits(seconds, memory), _parse_parameters(params))
    if text is not None:
        write_result(ask(text), form, output, limit=limit)
        return
    for statement in _read_statements():
        try:
            if statement.startswith("."):
                _run_meta_command(statement)
            else:
                write_result(ask(statement), form, output, limit=limit)
        except HtkError as error:
            print_line(f"htk: {error}")


def _split_query(paths: tuple[str, ...], script: str | None) -> tuple[tuple[str, ...], str | None]:
    """Return the paths, and the query if one was given after them or in a file."""
    if script is not None:
        try:
            if script == "-":
                return paths, sys.stdin.read()
            return paths, Path(script).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{script}: not readable as a query ({error})") from None
    before = paths[:-1]
    last = "".join(paths[-1:])
    one_word = before and re.fullmatch(r"\.?\w+", last) and last != "sample"
    if not (one_word or re.search(r"\s", last)) or _is_existing_path(last):
        return paths, None
    if not before:
        raise UsageError(f'{last}: no such trace; it comes first: htk sql PATH "select …"')
    return before, last


def _is_existing_path(path: str) -> bool:
    """Tell whether a file has this name; a query longer than a name may be names none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _parse_parameters(params: tuple[str, ...]) -> Any:
    """Return the values of parameters, by name or in their order; numbers where they look so."""
    named = [re.fullmatch(r"([A-Za-z_]\w*)=(.*)", param, re.DOTALL) for param in params]
    if params and all(named):
        return {match[1]: _parse_value(match[2]) for match in named if match}
    if any(named):
        raise UsageError("--param: all by name, or all in their order")
    return [_parse_value(param) for param in params]


def _parse_value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _build_asker(
    paths: tuple[str, ...], arguments: Fields, limits: Any, values: Any
) -> Callable[[str], Any]:
    """Return a function that runs a query: on a Parquet dataset, which is scanned from disk, or on
    anything else, which is opened as a trace."""
    from htk.faces.cli.commands.common import open_narrowed
    from htk.verdicts.query import sql

    folder = Path(paths[0])
    if len(paths) == 1 and sql.dataset_tables(folder):
        return lambda text: sql.query_dataset(folder, text, limits, values)
    trace = open_narrowed(paths, arguments)
    return lambda text: sql.run_query(trace, text, limits, values)


def _read_statements() -> Any:
    """Yield statements as they are typed, or piped in."""
    asking = sys.stdin.isatty()
    if asking:
        _with_history()
        click.echo("SQL over the trace; .tables lists what can be read, .quit leaves.")
    lines: list[str] = []
    while True:
        try:
            line = input(("   … " if lines else "htk> ") if asking else "")
        except EOFError:
            break
        if not lines and line.strip() in (".quit", ".exit"):
            return
        if not lines and line.lstrip().startswith("."):
            yield line.strip()
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
    if "".join(lines).strip():
        yield "\n".join(lines)


def _run_meta_command(text: str) -> None:
    from htk.base.schema import doc_of
    from htk.verdicts.query import sql
    from htk.verdicts.query.worker import build_macros

    word, _, name = text.partition(" ")
    if word == ".tables":
        for relation, what in sql.list_relations().items():
            click.echo(f"  {relation:26} {what}")
    elif word in (".columns", ".schema") and name.strip():
        if name.strip() not in sql.list_relations():
            raise UsageError(f"no table or analysis {name.strip()!r}; .tables lists them")
        for field in sql.describe_columns(name.strip()):
            kind = "text" if str(field.type).startswith("dictionary") else str(field.type)
            click.echo(f"  {field.name:26} {kind:8} {doc_of(field)}")
    elif word == ".macros":
        click.echo(build_macros())
    else:
        click.echo(_HELP)


def _with_history() -> None:
    """Offer earlier queries by arrow keys and names by the tab key, where readline is there."""
    try:
        import readline
    except ImportError:
        return
    from htk.base.io.cache_folder import cache_root
    from htk.verdicts.query import sql

    names = sorted({*sql.list_relations(), "union_spans", "overlap_spans", "exposed_spans", "busy"})

    def complete_name(start: str, k: int) -> str | None:
        fitting = [name for name in names if name.startswith(start)]
        return fitting[k] if k < len(fitting) else None

    readline.set_completer(complete_name)
    readline.set_completer_delims(" \t\n()',;=<>")
    readline.parse_and_bind("tab: complete")
    history = cache_root() / "sql_history"
    try:
        readline.read_history_file(history)
    except OSError:
        history.parent.mkdir(parents=True, exist_ok=True)
    import atexit

    atexit.register(lambda: readline.write_history_file(history))
