"""`htk doctor`: what a recording holds, lacks and lost."""

import shutil
import sys
import textwrap
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import make_visible
from htk.base.core.whole_file import write_whole
from htk.base.mappings import Facts
from htk.faces.cli.commands.common import opening_options, writing_options

if TYPE_CHECKING:
    from htk.answers.output.result import Result

_MOST_BYTES = 16 << 20  # of files that are parsed anew, for the arguments that nothing reads
_ENDLESS = 100_000  # into a file or pipe no line is broken


@click.command("doctor")
@opening_options
@writing_options
def command(
    paths: tuple[str, ...], form: str, output: str | None, limit: int, **arguments: Any
) -> None:
    """What was recorded, what is missing for which question, and what is damaged?"""
    from htk.answers.output.render import write_result
    from htk.faces.cli.commands.common import open_narrowed, show_progress
    from htk.verdicts.overview.doctor import check_recording

    if _are_small(paths):  # else the option asks for it
        arguments |= {"keep_unknown_arguments": True, "no_cache": True}
    trace = open_narrowed(paths, arguments)
    with show_progress():
        diagnosis = check_recording(trace)
    if form != "table":
        write_result(diagnosis, form, output, limit=limit)
    elif output is not None:
        write_whole(output, _render_diagnosis(diagnosis, limit, _ENDLESS))
    else:
        wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ENDLESS
        click.echo(_render_diagnosis(diagnosis, limit, wide), nl=False)


def _are_small(paths: tuple[str, ...]) -> bool:
    """Return whether all is on this machine, and little."""
    total = 0
    for path in map(Path, paths):
        if not path.exists():
            return False
        for file in (path, *path.rglob("*")):
            total += file.stat().st_size if file.is_file() else 0
            if total > _MOST_BYTES:
                return False
    return True


def _render_diagnosis(diagnosis: "Result", limit: int, wide: int) -> str:
    """Section by section; sentences go over several lines in a narrow terminal."""
    from htk.answers.output.coverage_text import coverage_lines
    from htk.answers.output.render import left_out

    rows = [
        {**row, "item": make_visible(row["item"])}
        for row in diagnosis.table.slice(0, limit).to_pylist()
    ]
    lines: list[str] = []
    for section, of_section in groupby(rows, lambda row: row["section"]):
        lines += [section, *_render_section(list(of_section), wide), ""]
    lines += left_out(diagnosis, limit, []) + coverage_lines(diagnosis.coverage)
    return "\n".join(lines) + "\n"


def _render_section(rows: list[Facts], wide: int) -> Iterable[str]:
    state = max(len(row["state"]) for row in rows)
    item = min(max(len(row["item"]) for row in rows), max(wide // 3, 12))
    for row in rows:
        start = f"  {row['state']:<{state}}  {row['item']:<{item}}  "
        text = make_visible(row["finding"])
        if row["advice"]:
            text += f" → {make_visible(row['advice'])}"
        indent = " " * (state + item + 6)
        yield from textwrap.wrap(
            start + text,
            wide,
            subsequent_indent=indent,
            drop_whitespace=True,
            replace_whitespace=False,
            break_on_hyphens=False,
        )
