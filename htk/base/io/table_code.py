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
PACKAGES = ("base", "parsers", "physics", "quantities/derived")
# What answers questions from tables, beside those.
ANSWERING = (
    "analyses",
    "answers",
    "quantities",
    "traces/compare",
    "traces/trace",
    "planning",
    "whatif",
    "verdicts/causes",
)
_HTK = Path(__file__).parents[2]


@cache
def table_code(package: Path = _HTK) -> str:
    """Return the hash of all code of htk that makes tables, in a checkout or installed."""
    return _digest_packages(package, PACKAGES)


@cache
def answer_code(package: Path = _HTK) -> str:
    """Return the hash of all code that answers questions from tables, but for what makes those."""
    return _digest_packages(package, ANSWERING)


@cache
def package_code(name: str) -> str:
    """Return the hash of all code of one of htk's packages."""
    return _digest_packages(_HTK / name, ("",))


@cache
def plugin_code(file: str) -> str:
    """Return the hash of a parser of another package: its module, or the folder it is."""
    folder, name = os.path.split(file)
    files = _list_files(folder) if name.startswith("__init__.") else [file]
    return _hash_files(files, folder)


def _digest_packages(root: Path, names: tuple[str, ...]) -> str:
    return _hash_files(
        [file for name in names for file in _list_files(str(root / name))], str(root)
    )


def _list_files(folder: str) -> Iterator[str]:
    """Every file below a folder except what Python compiles from it and editors leave."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            if entry.is_dir():
                yield from _list_files(entry.path)
            else:
                yield entry.path


def _hash_files(files: Iterator[str] | list[str], base: str) -> str:
    """Hash names and contents; each has its length before it, so that no two sets look alike."""
    digest = hashlib.sha256()
    for path in sorted(files):
        with open(path, "rb", buffering=0) as file:  # a tenth of the time that pathlib takes
            content = file.readall()
        name = path.removeprefix(base).encode()
        digest.update(b"%d %d " % (len(name), len(content)) + name)
        digest.update(content)
    return digest.hexdigest()
