"""What other packages add: their entry points, found without importing them.

A package names what it adds in its metadata, under `htk.parsers`, `htk.analyses` or `htk.edits`:

    [project.entry-points."htk.analyses"]
    slowest_lap = "my_package.laps:slowest_lap"

Metadata is read as files: importlib.metadata takes longer to import than `htk --help` may take.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from htk.base.errors import HtkError

GROUPS = ("htk.parsers", "htk.analyses", "htk.edits")


@dataclass(frozen=True)
class PluginEntry:
    """One thing that a package adds."""

    name: str
    package: str  # as installed, with its version
    module: str
    attribute: str  # empty: the module itself

    def load(self) -> Any:
        """Return the thing itself; a package that cannot be imported is named."""
        try:
            module = importlib.import_module(self.module)
            return getattr(module, self.attribute) if self.attribute else module
        except Exception as error:  # whatever a stranger's module does when imported
            raise HtkError(
                f"{self.name!r} of the package {self.package} cannot be loaded: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error


def list_added(group: str) -> dict[str, PluginEntry]:
    """Return what packages add to a group, by name; the first on the path wins."""
    entries: dict[str, PluginEntry] = {}
    for entry in _list_everything().get(group, ()):
        entries.setdefault(entry.name, entry)
    return entries


def load_added(group: str) -> list[Any]:
    """Return what packages add to a group, imported; what cannot be is left out with a warning."""
    things = []
    for entry in list_added(group).values():
        try:
            things.append(entry.load())
        except HtkError as error:
            warnings.warn(str(error), stacklevel=2)
    return things


@cache
def _list_everything() -> dict[str, list[PluginEntry]]:
    groups: dict[str, list[PluginEntry]] = {}
    for folder, text in _entry_points():
        group = ""
        package = os.path.basename(folder).removesuffix(".dist-info").removesuffix(".egg-info")
        for line in text.splitlines():
            line = line.strip()
            if line.startswith("["):
                group = line.strip("[]").strip()
            elif group in GROUPS and "=" in line and not line.startswith(("#", ";")):
                name, _, target = (piece.strip() for piece in line.partition("="))
                module, _, attribute = target.partition(" ")[0].partition(":")
                entry = PluginEntry(name, package, module, attribute)
                groups.setdefault(group, []).append(entry)
    return groups


def _entry_points() -> Iterator[tuple[str, str]]:
    """Metadata folder and entry points of each installed package that adds to htk."""
    for folder in dict.fromkeys(sys.path):
        try:
            with os.scandir(folder or ".") as entries:
                paths = sorted(
                    e.path for e in entries if e.name.endswith((".dist-info", ".egg-info"))
                )
        except OSError:
            continue
        for path in paths:
            try:
                with open(os.path.join(path, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if "htk." in text:
                yield path, text
