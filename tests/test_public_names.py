"""Every name that a user types stands in `public_names.txt`, and none of them goes away.

`PYTHONPATH=. python tests/test_public_names.py` writes the list anew, after names were added.
"""

import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

import htk
from htk import analyses
from htk.analyses import ANALYSES
from htk.base.schema import DERIVED, TABLES
from htk.dashboard.pages import composed
from htk.faces.cli.main import htk as program
from htk.faces.mcp.tools import tools
from htk.faces.mcp.traces import Traces
from htk.whatif.api import WhatIf
from htk.whatif.edits import EDITS

LIST = Path(__file__).with_name("public_names.txt")
PYTHON_MODULES = ("htk.hta", "htk.recording.huggingface", "htk.recording.lightning")


def collect_public_names() -> list[str]:
    """Return each name on a line of its own, after what kind of name it is."""
    names = {
        *_name_commands(program, "htk"),
        *_name_questions(),
        *_name_tables(),
        *_name_python(),
        *(f"page {path}" for path in composed()),
        *(f"edit {edit.NAME}" for edit in EDITS),
        *(f"tool {name}" for name, _, _ in tools(cast(Traces, None))),
    }
    return sorted(names)


def _name_commands(group: click.Group, prefix: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"command {prefix} {name}"
        for parameter in command.params:
            for word in (*parameter.opts, *parameter.secondary_opts):
                yield f"option {prefix} {name} {word}"
        if isinstance(command, click.Group):
            yield from _name_commands(command, f"{prefix} {name}")


def _name_questions() -> Iterator[str]:
    for name in ANALYSES:
        question = analyses.find(name)
        yield f"question {name}"
        yield from (f"question {name} option {option}" for option in question.options)
        yield from (f"question {name} column {column}" for column in question.returns.names)


def _name_tables() -> Iterator[str]:
    for name, schema in {**TABLES, **DERIVED}.items():
        yield f"table {name}"
        yield from (f"table {name} column {column}" for column in schema.names)


def _name_python() -> Iterator[str]:
    for name in htk.__all__:
        yield f"python htk.{name}"
        if inspect.isclass(getattr(htk, name)):
            yield from _name_methods(f"htk.{name}", getattr(htk, name))
    yield from _name_methods("htk.whatif.api.WhatIf", WhatIf)
    for module in PYTHON_MODULES:
        for name, value in vars(importlib.import_module(module)).items():
            is_own = getattr(value, "__module__", "").startswith("htk.")
            if is_own and inspect.isclass(value) and not name.startswith("_"):
                yield f"python {module}.{name}"
                yield from _name_methods(f"{module}.{name}", value)


def _name_methods(owner: str, kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        if name.startswith("_"):
            continue
        yield f"python {owner}.{name}"
        if inspect.isfunction(value):
            for parameter in list(inspect.signature(value).parameters.values())[1:]:
                if parameter.annotation is not typing.Never:  # which refuses misspelt ones
                    yield f"python {owner}.{name}({parameter.name})"


def test_no_name_that_a_user_types_is_gone() -> None:
    listed = LIST.read_text(encoding="utf-8").splitlines()
    assert len(listed) > 4_000
    assert not set(listed) - set(collect_public_names())


if __name__ == "__main__":
    LIST.write_text("\n".join(collect_public_names()) + "\n", encoding="utf-8")
