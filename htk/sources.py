"""What a user names (files, folders, globs, archives, `-`, URLs) as an ordered list of sources."""

import hashlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from htk import archives, remote
from htk.errors import TraceError
from htk.parser import HEAD_BYTES, Head, Source
from htk.streams import open_stream

STDIN_LIMIT = 64 << 30
# Files that lie beside traces and are never one.
_OTHERS = re.compile(
    r"\.(py|pyc|toml|ya?ml|md|rst|html?|css|js|png|jpe?g|svg|gif|pdf|csv|tsv|xlsx|parquet|arrow"
    r"|pt|pth|safetensors|bin|so|whl|ipynb|lock)$",
    re.IGNORECASE,
)
_XPLANE = re.compile(r"\.xplane\.pb$")
# The rank in a file's name: after the word rank or worker, or the digits that end the name of a
# flight recorder's dump. A pid or a time stamp is none.
_RANKS = (
    re.compile(r"(?:^|[^a-z])(?:rank|worker)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:comm_lib_trace|nccl_trace|hccl_trace)\D*?(\d{1,6})$"),
)
_RANK_FOLDER = re.compile(r"(?:rank|worker)[-_ ]?(\d{1,6})", re.IGNORECASE)


def resolve(inputs: str | Path | Sequence[str | Path]) -> list[Source]:
    """Every file that the inputs name, each once, in the order they were named."""
    names = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    found: dict[str, Source] = {}
    for name in names:
        for source in _named(str(name)):
            found.setdefault(source.name, source)
    if not found:
        raise TraceError(f"{', '.join(map(str, names))}: no files there")
    return list(found.values())


def head(source: Source) -> Head:
    """The first bytes of a source, decompressed."""
    buffer = bytearray(HEAD_BYTES)
    done = 0
    with source.open() as file, open_stream(file) as stream:
        while done < HEAD_BYTES and (size := stream.readinto(memoryview(buffer)[done:])):
            done += size
    return Head(source.name, bytes(buffer[:done]), done < HEAD_BYTES)


def rank_from_name(name: str) -> int | None:
    """The rank that a file's name states, else the folder it lies in."""
    *folders, file = re.split(r"[\\/!]", name)
    for pattern in _RANKS:
        match = pattern.search(file)
        if match:
            return int(match[1])
    for folder in reversed(folders):
        match = _RANK_FOLDER.fullmatch(folder)
        if match:
            return int(match[1])
    return None


def content_identity(source: Source) -> str:
    """A hash of the stored bytes, for who does not trust times and sizes."""
    digest = hashlib.sha256()
    with source.open() as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _named(name: str) -> list[Source]:
    if name == "-":
        return [_stdin()]
    if remote.is_url(name):
        return remote.sources(name)
    path = Path(name)
    if path.is_dir():
        return list(_folder(path))
    if path.is_file():
        return archives.members(_file(path)) or [_checked(_file(path))]
    if any(c in name for c in "*?["):
        return [s for match in _glob(name) for s in _named(match)]
    raise TraceError(f"{name}: no such file or folder")


def _glob(pattern: str) -> list[str]:
    import glob

    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise TraceError(f"{pattern}: nothing matches")
    return matches


def _folder(folder: Path) -> Iterator[Source]:
    """Files below a folder that may be traces; links to folders are not followed."""
    only_xplane = None
    any_file = False
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        for file in sorted(files):
            path = Path(at) / file
            if _XPLANE.search(file):
                only_xplane = path
            elif not file.startswith(".") and not _OTHERS.search(file) and path.is_file():
                any_file = True
                yield from archives.members(_file(path)) or [_file(path)]
    if only_xplane is not None and not any_file:
        _checked(_file(only_xplane))


def _checked(source: Source) -> Source:
    if _XPLANE.search(source.name):
        raise TraceError(
            f"{source.name}: an XLA profile (xplane.pb), which htk does not read; "
            "export a PyTorch profiler trace (*.pt.trace.json) instead"
        )
    return source


def _file(path: Path) -> Source:
    resolved = path.resolve()
    facts = resolved.stat()
    identity = f"{resolved}|{facts.st_size}|{facts.st_mtime_ns}|{facts.st_ino}"
    return Source(str(path), partial(_open, resolved), facts.st_size, identity)


def _open(path: Path) -> BinaryIO:
    return path.open("rb", buffering=0)


def _stdin() -> Source:
    """Standard input, kept in a file of its own: it has to be looked at before it is read."""
    kept = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as its source)
    size = 0
    while block := sys.stdin.buffer.read(1 << 20):
        size += len(block)
        if size > STDIN_LIMIT:
            raise TraceError(f"-: more than {STDIN_LIMIT >> 30} GiB; write it to a file first")
        kept.write(block)
    kept.flush()
    return Source("-", partial(_again, kept.fileno(), kept), size, None)


def _again(descriptor: int, keep: object) -> BinaryIO:
    """The file from its beginning, with a place of its own."""
    return io.BufferedReader(_At(descriptor, keep))


class _At(io.RawIOBase):
    """Reads an open file by position, so that several may read it."""

    def __init__(self, descriptor: int, keep: object) -> None:
        self._descriptor, self._keep, self._place = descriptor, keep, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = os.preadv(self._descriptor, [buffer], self._place)
        self._place += size
        return size
