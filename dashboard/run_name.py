"""The name of a run, shown in the corner of every page and used in names of exported files."""

from collections.abc import Sequence

from htk.traces.trace.trace import Trace


def run_name(trace: Trace, key: str) -> str:
    """Return a run's name: its key, or of what has none the file's or folder's."""
    names = sorted({p.file for p in trace.files})
    if key and not key.startswith("upload/"):
        return key
    if len(names) == 1 or key:
        return names[0].rsplit("/", 1)[-1]
    folders = names[0].rsplit("/", 2)
    return folders[-2] if len(folders) > 2 else ""


def names_in_short(names: Sequence[str]) -> str:
    """Return the first of some files' names, and of how many."""
    if len(names) < 2:
        return "".join(names)
    return f"{names[0]} · {len(names)} files"
