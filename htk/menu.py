"""Writes the menu of `htk/analyses/__init__.py` from the folder: `python -m htk.menu`."""

import importlib
import pkgutil
import re
from pathlib import Path

from htk import analyses
from htk.analysis import Analysis

_MENU = re.compile(r"ANALYSES: dict\[str, Entry\] = \{.*?\}\n", re.DOTALL)


def collected() -> dict[str, tuple[str, str]]:
    """Every analysis of the folder: its module and its question."""
    found = {}
    prefix = analyses.__name__ + "."
    for info in pkgutil.walk_packages(analyses.__path__, prefix):
        for value in vars(importlib.import_module(info.name)).values():
            if isinstance(value, Analysis) and value.function.__module__ == info.name:
                found[value.name] = (info.name.removeprefix(prefix), value.question)
    return dict(sorted(found.items()))


def text() -> str:
    """The menu as source."""
    lines = [
        f'    "{name}": Entry("{module}", "{question}"),\n'
        for name, (module, question) in collected().items()
    ]
    return "ANALYSES: dict[str, Entry] = {" + ("\n" if lines else "") + "".join(lines) + "}\n"


def main() -> None:
    path = Path(str(analyses.__file__))
    path.write_text(_MENU.sub(lambda _: text(), path.read_text()))


if __name__ == "__main__":
    main()
