"""Answers as they were printed, kept so that the same command is answered without opening a trace.

An answer is kept under a hash of all that it was made of: the arguments, htk's own code, the files
named and those below the folders named, and the environment that htk reads. Files are told by path,
size, times and inode, as the tables of a trace are. Only a complete answer of an analysis is kept,
one that printed no warning; nothing is kept or looked up where the output is a terminal, whose
width and colours differ.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

from htk.base.io.cache_folder import cache_root

FOLDER = "answers"
MOST_FILES = 20_000  # in the folders named; beyond, looking at each takes too long
MOST_KEPT = 2_000
_MOST_CHARACTERS = 4 << 20
_NEVER = {"--no-cache", "--help", "-h", "-o", "--output", "--version", "-"}
_BINARY = ("parquet", "arrow", "xlsx")
_CODE = Path(__file__).parents[2]
_Stamp = tuple[str, int, int, int, int]  # path, size, times, inode


def answer_or_run(argv: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """Print the answer kept for a command, else `run` it and keep what it prints."""
    stamps: list[list[_Stamp]] = []
    name = name_answer(argv, stamps)
    if name is None:
        return run(argv)
    text = find_kept_answer(name)
    if text is not None:
        with suppress(OSError):  # a full disk: who answers anew says so
            sys.stdout.write(text)
            sys.stdout.flush()
            return 0
    if not _is_keepable(argv[0]):
        return run(argv)
    output = _Copied(sys.stdout)
    errors = _Copied(sys.stderr)
    sys.stdout = cast(TextIO, output)
    sys.stderr = cast(TextIO, errors)
    try:
        code = run(argv)
        complete = code == 0 and cast(Any, sys.stdout) is output and not errors.parts
    finally:
        sys.stdout = output.stream
        sys.stderr = errors.stream
    if complete and name_answer(argv, stamps) == name:
        keep_answer(name, "".join(output.parts))
    return code


class _Copied:
    """A stream that remembers what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        count = self.stream.write(text)
        self.parts.append(text)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _is_keepable(command: str) -> bool:
    """Return whether a command answers a question from files alone, with htk's own code alone."""
    from htk.analyses import ANALYSES
    from htk.base import plugins

    name = command.replace("-", "_")
    own = not any(plugins.list_added(group) for group in plugins.GROUPS)
    return own and (name in ANALYSES or name == "summary")


def name_answer(argv: Sequence[str], code: list[list[_Stamp]] | None = None) -> str | None:
    """Return the name of the answer to a command, or None where it may not be kept.

    `code`: where stamps of the code are kept for a second key of the same run.
    """
    code = [] if code is None else code
    if not argv or sys.stdout is None or sys.stdout.isatty():
        return None
    if any(word.partition("=")[0] in _NEVER or "://" in word for word in argv):
        return None
    if any(form in word for word in argv for form in _BINARY):
        return None
    try:
        files = [_stamp_file(path) for path in _list_inputs(argv)]
        code += [] if code else _list_code_stamps()
        facts = [list(argv), os.getcwd(), sys.version, _list_environment(), files, *code]
    except (OSError, ValueError, _TooMany):
        return None
    if not files:
        return None
    return hashlib.sha256(json.dumps(facts).encode(errors="surrogateescape")).hexdigest()[:40]


def find_kept_answer(name: str) -> str | None:
    """Return the answer kept under a key; None if there is none or it is not as it was written."""
    path = cache_root() / FOLDER / name
    try:
        seal, _, text = path.read_bytes().partition(b"\n")
        if seal.decode() != _hash_content(text):
            path.unlink()
            return None
        os.utime(path)
        return text.decode()
    except (OSError, UnicodeDecodeError):
        return None


def keep_answer(name: str, text: str) -> None:
    """Keep an answer; a disk that will not costs nothing."""
    if len(text) > _MOST_CHARACTERS:
        return
    folder = cache_root() / FOLDER
    content = text.encode()
    temporary = folder / f".{name}.{os.getpid()}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_hash_content(content).encode() + b"\n" + content)
            temporary.rename(folder / name)
        finally:
            temporary.unlink(missing_ok=True)
        _drop_old_answers(folder)


def clear_kept_answers() -> None:
    """Forget every answer."""
    with suppress(OSError):
        for entry in os.scandir(cache_root() / FOLDER):
            os.unlink(entry.path)


class _TooMany(Exception):
    """More files than it pays to look at."""


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _list_inputs(argv: Sequence[str]) -> Iterator[str]:
    """Yield every file that a command's words name, and those below the folders they name."""
    count = 0
    for path in (path for word in argv[1:] for path in _list_named_files(word)):
        yield path
        count += 1
        if not os.path.isdir(path):
            yield os.path.dirname(path) or "."  # what lies beside a file may be read, too
        for folder, _, files in os.walk(path):
            count += len(files)
            if count > MOST_FILES:
                raise _TooMany
            yield folder
            yield from (os.path.join(folder, file) for file in files)


def _list_named_files(word: str) -> Iterator[str]:
    """Yield the files and folders that a word names, as what opens them understands it."""
    path = word.partition("=")[2] if word.startswith("--") and "=" in word else word
    if path == "sample" and not os.path.exists(path):
        path = str(_CODE / "traces/sample")
    path = os.path.expanduser(path)
    if os.path.exists(path):
        yield path
    elif any(c in path for c in "*?["):
        from glob import iglob  # with re: most commands need neither

        yield from iglob(path, recursive=True)


def _stamp_file(path: str) -> _Stamp:
    """Return what changes whenever a file does."""
    facts = os.stat(path)
    return path, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def _list_environment() -> list[tuple[str, str, list[_Stamp]]]:
    """Return what htk reads of the environment, with the files that it names."""
    names = sorted(n for n in os.environ if n.startswith("HTK_") or n in ("TZ", "COLUMNS"))
    values = [(name, os.environ[name]) for name in names]
    return [(n, v, [_stamp_file(v)] if os.path.isfile(v) else []) for n, v in values]


def _list_code_stamps() -> Iterator[list[_Stamp]]:
    """Yield the stamps of htk's own files, and of the folders in which packages are installed."""
    yield [_stamp_file(path) for path in sorted(_list_files(str(_CODE)))]
    yield [_stamp_file(path) for path in sys.path if os.path.isdir(path)]


def _list_files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:  # in half the time that os.walk takes
        for entry in entries:
            if entry.is_dir():
                if entry.name not in ("__pycache__", "assets"):
                    yield from _list_files(entry.path)
            elif not entry.name.endswith(".pyc"):
                yield entry.path


def _drop_old_answers(folder: Path) -> None:
    """Drop the answers used least lately, and what killed processes left, once there are many."""
    entries = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(folder)]
    if len(entries) > MOST_KEPT:
        for _, path in sorted(entries)[: len(entries) - MOST_KEPT // 2]:
            os.unlink(path)
    for used, path in entries:
        if os.path.basename(path).startswith(".") and time.time() - used > 24 * 3600:
            os.unlink(path)
