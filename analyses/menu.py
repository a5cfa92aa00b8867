"""Writes what is derived from all analyses: `python -m htk.analyses.menu`.

The menu in `analyses/__init__.py`, and the types of a session's methods in `questions.pyi`.
"""

import importlib
import pkgutil
import re
import types
import typing
from pathlib import Path
from typing import Any

import htk
from htk import analyses
from htk.base.core.analysis import Analysis
from htk.base.schema import TABLES

ROOMS = ("htk.analyses", "htk.verdicts.causes")  # those that answer questions by name
_OF_EACH_RANK = {"ranks", "parse_issues", "events"}  # tables which every recording has
_STUB = Path(htk.__file__).parent / "faces/notebook" / "questions.pyi"
_MENU = re.compile(r"ANALYSES: dict\[str, MenuEntry\] = \{.*?\}\n", re.DOTALL)


def collect_analyses() -> dict[str, Analysis[...]]:
    """Return every analysis of the rooms that answer questions, by name."""
    entries = {}
    for room in map(importlib.import_module, ROOMS):
        for info in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, Analysis) and value.function.__module__ == info.name:
                    entries[value.name] = value
    return dict(sorted(entries.items()))


def build_menu_source() -> str:
    """Return the menu as source."""
    lines = [
        f'    "{name}": {_spell_entry(analysis)},\n'
        for name, analysis in collect_analyses().items()
    ]
    return "ANALYSES: dict[str, MenuEntry] = {" + ("\n" if lines else "") + "".join(lines) + "}\n"


def _spell_entry(analysis: Analysis[...]) -> str:
    """Return the line of an analysis: with the tables that it needs, else those that it reads."""
    module = analysis.function.__module__.removeprefix("htk.")
    read = tuple(t for t in analysis.reads if t in TABLES and t not in _OF_EACH_RANK)
    tables = f", needs={analysis.needs!r}" if analysis.needs else f", reads={read!r}"
    tables = tables.replace("'", '"') if analysis.needs or read else ""
    return f'MenuEntry("{module}", "{analysis.question}"{tables})'


_STUB_HEAD = '''"""Every analysis as a method, written by `python -m htk.analyses.menu`."""

# fmt: off
from typing import Literal

from htk.answers.output.result import Result

class Questions:
'''


def build_session_stub() -> str:
    """Return the methods of a session, as a type checker reads them."""
    methods = []
    for name, analysis in collect_analyses().items():
        options = [
            f"{o.name}: {_spell_type(o.type)} = {o.default!r}" for o in analysis.options.values()
        ]
        signature = ", ".join(["self", *(["*", *options] if options else [])])
        methods.append(
            f'    def {name}({signature}) -> Result:\n        """{analysis.question}"""\n'
        )
    return _STUB_HEAD + "\n".join(methods)


def _spell_type(hint: Any) -> str:
    """Return a type as source."""
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_spell_type, inner))
    if origin is tuple:
        return f"tuple[{', '.join('...' if i is Ellipsis else _spell_type(i) for i in inner)}]"
    return "None" if hint is type(None) else str(hint.__name__)


def main() -> None:
    path = Path(str(analyses.__file__))
    path.write_text(_MENU.sub(lambda _: build_menu_source(), path.read_text()))
    _STUB.write_text(build_session_stub())


if __name__ == "__main__":
    main()
