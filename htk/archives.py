"""Archives (.zip, .tar, .tar.gz, .tgz): their members as sources, read in place, never unpacked."""

import shutil
import stat
import tarfile
import tempfile
import zipfile
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from htk.errors import MalformedTrace, TraceError
from htk.parser import Source

MOST_MEMBERS = 100_000
_SPOOLED = 64 << 20  # a member of a packed tar is kept in memory up to this size


def members(source: Source) -> list[Source]:
    """The files within, or nothing where the source is no archive."""
    name = source.file_name.lower()
    try:
        if name.endswith(".zip"):
            return _zipped(source)
        if name.endswith((".tar", ".tar.gz", ".tgz")):
            return _tarred(source)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise MalformedTrace(f"{source.name}: damaged archive: {error}") from error
    return []


def _zipped(source: Source) -> list[Source]:
    with source.open() as file, zipfile.ZipFile(file) as archive:
        entries = [e for e in archive.infolist() if not e.is_dir() and not _is_link(e)]
        _within_limits(source, len(entries))
        return [
            _member(source, e.filename, e.file_size, partial(_open_zipped, source, e.filename))
            for e in entries
            if _is_plain(source, e.filename)
        ]


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(entry.external_attr >> 16)


def _open_zipped(source: Source, name: str) -> BinaryIO:
    archive = zipfile.ZipFile(source.open())
    return cast(BinaryIO, archive.open(name))


def _tarred(source: Source) -> list[Source]:
    found: list[Source] = []
    with source.open() as file, tarfile.open(fileobj=file, mode="r|*") as archive:
        for entry in archive:
            if not entry.isfile():  # links and devices are not followed
                continue
            _within_limits(source, len(found) + 1)
            if _is_plain(source, entry.name):
                open_ = partial(_open_tarred, source, entry.name)
                found.append(_member(source, entry.name, entry.size, open_))
    return found


def _open_tarred(source: Source, name: str) -> BinaryIO:
    """A member's bytes: the tar is read up to it, once."""
    kept = tempfile.SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115  (handed on, open)
    with source.open() as file, tarfile.open(fileobj=file, mode="r|*") as archive:
        for entry in archive:
            if entry.name == name and entry.isfile():
                member = archive.extractfile(entry)
                if member is not None:
                    shutil.copyfileobj(member, kept)
                break
    kept.seek(0)
    return cast(BinaryIO, kept)


def _member(source: Source, name: str, size: int, open_: partial[BinaryIO]) -> Source:
    identity = None if source.identity is None else f"{source.identity}!{name}"
    return Source(f"{source.name}!{name}", open_, size, identity)


def _is_plain(source: Source, name: str) -> bool:
    """A file's name, and no way out of the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise TraceError(f"{source.name}: member {name!r} points outside; refused")
    return not path.name.startswith(".") and "__MACOSX" not in path.parts


def _within_limits(source: Source, count: int) -> None:
    if count > MOST_MEMBERS:
        raise TraceError(f"{source.name}: more than {MOST_MEMBERS:,} members; unpack it first")
