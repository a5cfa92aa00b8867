"""The name of a run, shown in the corner of every page and used in names of exported files."""

from collections.abc import Sequence
from itertools import takewhile

from htk.traces.trace.trace import Trace


def run_name(trace: Trace, key: str) -> str:
    """Return a run's name: its key, or of what has none the file's, or that of the folder which
    holds all files."""
    names = sorted({p.file for p in trace.files})
    if key and not key.startswith("upload/"):
        return key
    if len(names) == 1 or key:
        return names[0].rsplit("/", 1)[-1]
    folders = (name.split("/")[:-1] for name in (names[0], names[-1]))
    pairs = zip(*folders, strict=False)
    shared = [folder for folder, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return shared[-1] if shared else ""


def names_in_short(names: Sequence[str]) -> str:
    """Return the first of some files' names, and of how many."""
    if len(names) < 2:
        return "".join(names)
    return f"{names[0]} · {len(names)} files"
