"""`htk doctor`: is this trace good for what I want to ask of it?"""

from typing import Any

import click

from htk.commands.common import opening_options, writing_options


@click.command("doctor")
@opening_options
@writing_options
def command(
    paths: tuple[str, ...], form: str, output: str | None, limit: int, **given: Any
) -> None:
    """What was recorded, what is missing for which question, and what is damaged?"""
    from htk.commands.common import opened
    from htk.coverage import coverage
    from htk.doctor import doctor
    from htk.render import write
    from htk.result import Result

    trace = opened(paths, given)
    write(Result(doctor, doctor(trace), coverage(trace, ())), form, output, limit=limit)
