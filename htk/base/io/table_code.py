"""Which code makes the tables of a file: a hash of its sources, taken without importing them.

What the cache holds is as right as the code that made it, so the hash is part of an entry's name: a
mended parser reads every file anew. Contents are hashed, not times: two installations of one
version share their entries, and a build with fixed times cannot pass for another.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Packages whose code decides what a table holds: parsers, makers of derived tables, what both use.
PACKAGES = ("columns", "core", "derived", "io", "models", "names", "parsers", "schema")
# What answers questions from tables, beside those.
ANSWERING = (
    "analyses",
    "answers",
    "compare",
    "graph",
    "measures",
    "output",
    "spread",
    "straggler",
    "trace",
)
_MODULES = ("errors.py", "plugins.py")
_COMPILED = ("_allocator.", "_kineto.", "_order.")  # their twins in Python are among the packages
_ANSWERING_COMPILED = ("_overlaps.", "_replay.")


@cache
def table_code(package: Path = Path(__file__).parents[1]) -> str:
    """Return the hash of all code of htk that makes tables, in a checkout or installed."""
    names = [e.name for e in os.scandir(package) if e.name.startswith(_COMPILED)]
    files = [str(package / name) for name in (*_MODULES, *names)]
    for name in PACKAGES:
        files += _files(str(package / name))
    return _digest(files, str(package))


@cache
def answer_code(package: Path = Path(__file__).parents[1]) -> str:
    """Return the hash of all code that answers questions from tables, but for what makes those."""
    files = [e.path for e in os.scandir(package) if e.name.startswith(_ANSWERING_COMPILED)]
    for name in ANSWERING:
        files += _files(str(package / name))
    return _digest(files, str(package))


@cache
def package_code(name: str) -> str:
    """Return the hash of all code of one of htk's packages."""
    folder = str(Path(__file__).parents[1] / name)
    return _digest(list(_files(folder)), folder)


@cache
def plugin_code(file: str) -> str:
    """Return the hash of a parser of another package: its module, or the folder it is."""
    folder, name = os.path.split(file)
    return _digest(_files(folder) if name.startswith("__init__.") else [file], folder)


def _files(folder: str) -> Iterator[str]:
    """Every file below a folder except what Python compiles from it and editors leave."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _files(entry.path)
            else:
                yield entry.path


def _digest(files: Iterator[str] | list[str], base: str) -> str:
    """Hash names and contents; each has its length before it, so that no two sets look alike."""
    digest = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb", buffering=0) as file:  # a tenth of the time that pathlib takes
            content = file.readall()
        name = path.removeprefix(base).encode()
        digest.update(b"%d %d " % (len(name), len(content)) + name)
        digest.update(content)
    return digest.hexdigest()
