"""Which ingest engine works here: the compiled core, or its pure-Python twin."""

import hashlib
import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

from htk.base.errors import UsageError

Engine = Literal["compiled", "pure"]
SLOW_READER = "for the fast one install a wheel of this platform, or build with a C++17 compiler"


def choose_engine() -> Engine:
    """Return the engine in use; the environment variable HTK_ENGINE (compiled, pure) forces one."""
    wanted = os.environ.get("HTK_ENGINE", "")
    if wanted not in ("", "compiled", "pure"):
        raise UsageError(f"HTK_ENGINE is '{wanted}'; expected 'compiled' or 'pure'")
    if wanted == "pure":
        return "pure"
    if load_core() is not None:
        return "compiled"
    if wanted == "compiled":
        raise UsageError(
            "HTK_ENGINE asks for the compiled engine, which this installation lacks: "
            "reinstall htk-trace where there is a C++17 compiler, or unset HTK_ENGINE"
        )
    return "pure"


def describe_engine() -> str:
    """Return the engine in use, and what to do if it is the slow one."""
    return "compiled" if choose_engine() == "compiled" else f"pure, the slow reader: {SLOW_READER}"


def load_core() -> ModuleType | None:
    """Return the compiled core, if this installation has it. Raises for one of other sources."""
    try:
        module = importlib.import_module("htk.base.native._kineto")
    except ImportError:
        return None
    if sources_digest() not in ("", getattr(module, "SOURCES", None)):
        raise UsageError(
            f"{module.__file__} was built from other sources than this checkout has: run "
            "`python setup.py build_ext --inplace --force`, or set HTK_ENGINE=pure"
        )
    return module


@cache
def sources_digest(folder: Path = Path(__file__).parents[3] / "native" / "kineto") -> str:
    """Return the hash of the core's sources, as setup.py builds it in; "" without a checkout."""
    files = sorted(path for path in folder.glob("*") if path.suffix in (".cpp", ".h"))
    return hashlib.sha256(b"".join(map(Path.read_bytes, files))).hexdigest() if files else ""
