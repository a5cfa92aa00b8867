"""The public interface: every name that a user types or reads stands in `public_names.txt`.

`PYTHONPATH=. python tests/test_public_names.py` writes the list anew; CONTRIBUTING.md says which
changes of it a version may bring.
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
from htk.base import errors
from htk.base.schema import DERIVED, TABLES
from htk.dashboard.pages import load_pages
from htk.faces.cli.main import htk as program
from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces
from htk.whatif.api import WhatIf
from htk.whatif.edits import all_edits

LIST = Path(__file__).with_name("public_names.txt")
PYTHON_MODULES = ("htk.hta", "htk.recording.huggingface", "htk.recording.lightning")


def collect_public_names() -> list[str]:
    """Return each name on a line of its own, after what kind of name it is."""
    names = {
        *_name_commands(program, "htk"),
        *_name_questions(),
        *_name_tables(),
        *_name_python(),
        *_name_exit_codes(errors.HtkError),
        *(f"page {path}" for path in load_pages()),
        *(f"edit {edit.NAME}" for edit in all_edits()),
        *(f"tool {name}" for name, _, _ in list_tools(cast(Traces, None))),
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
            if isinstance(parameter.type, click.Choice):
                flag = max(parameter.opts, key=len)
                yield from (f"choice {prefix} {name} {flag} {c}" for c in parameter.type.choices)
        if isinstance(command, click.Group):
            yield from _name_commands(command, f"{prefix} {name}")


def _name_exit_codes(error: type[errors.HtkError]) -> Iterator[str]:
    yield f"exit code {error.exit_code} {error.__name__}"
    for kind in error.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from _name_exit_codes(kind)


def _name_questions() -> Iterator[str]:
    for name in ANALYSES:
        question = analyses.find_analysis(name)
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


def test_the_list_is_the_public_interface() -> None:
    listed, found = set(LIST.read_text(encoding="utf-8").splitlines()), set(collect_public_names())
    assert len(listed) > 5_000
    assert not listed - found, "gone or renamed: a new major version alone may do that"
    assert not found - listed, "new: PYTHONPATH=. python tests/test_public_names.py lists them"


if __name__ == "__main__":
    LIST.write_text("\n".join(collect_public_names()) + "\n", encoding="utf-8")
