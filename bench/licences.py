"""Licences of what htk needs, with what that needs in turn.

    python bench/licences.py [--extra all]

Lists every installed package that the extra brings, its version and licence, as the packages state
them. Ends with 1 where one may only be passed on under its own terms (GPL, AGPL, SSPL), or states
none.
"""

import argparse
import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = "htk-trace"
BINDING = re.compile(r"\b(A?GPL|SSPL|GNU (Affero )?General)", re.IGNORECASE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", default="all")
    packages = needed(parser.parse_args().extra)
    bad = 0
    for name, package in sorted(packages.items()):
        licence = licence_of(package)
        wrong = licence == "none stated" or bool(BINDING.search(licence))
        bad += wrong
        print(f"{name:28} {package.version:14} {licence}{'   <-- not permissive' * wrong}")
    print(f"{len(packages)} packages, {bad} of them not permissive")
    return int(bad > 0)


def needed(extra: str) -> dict[str, Distribution]:
    """Return the installed packages that an extra of the project brings, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages: dict[str, Distribution] = {}
    todo, seen = [Requirement(text) for text in project["dependencies"]], set()
    todo.append(Requirement(f"{PROJECT}[{extra}]"))
    while todo:
        wanted = todo.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        if wanted.name == PROJECT:
            texts = [t for e in wanted.extras for t in project["optional-dependencies"][e]]
        else:
            try:
                package = distribution(wanted.name)
            except PackageNotFoundError:  # of another platform
                continue
            packages[canonicalize_name(wanted.name)] = package
            texts = list(package.requires or ())
        todo += [r for text in texts if _applies(r := Requirement(text), wanted.extras)]
    return packages


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": e}) for e in (extras or {""}))


def licence_of(package: Distribution) -> str:
    """Return what a package states: its expression, else its classifiers, else a short text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = metadata.get_all("Classifier") or ()
    named = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License ::")]
    if named := [name for name in named if name != "OSI Approved"]:
        return ", ".join(named)
    text = str(metadata.get("License") or "").strip().splitlines()
    return text[0][:60] if text else "none stated"


if __name__ == "__main__":
    sys.exit(main())
