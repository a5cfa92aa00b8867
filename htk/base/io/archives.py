"""Archives (.zip, .tar, .tar.gz, .tgz, .tar.zst): their members as sources, never extracted.

Members of a zip or a plain tar are read in place; a packed tar is unpacked once, into a temporary
file without a name. An archive that cannot be used becomes a source that says so when opened.
"""

import re
import stat
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from htk.base.core.parser import Source
from htk.base.core.stated_counts import MEMBERS
from htk.base.errors import TraceError
from htk.base.io.decompress import Stream, open_stream, unpack_limit
from htk.base.io.raw_files import Part, Spool, build_broken_source, spell_reason

if TYPE_CHECKING:  # imported where there is an archive: few recordings are one
    import tarfile
    import zipfile

_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")
_ZIP = b"PK"
_MOST_RATIO = 1000  # of one member, as of any packed file
_FREE_BYTES = 64 << 20
_OUTSIDE = "its name points outside the archive; left out"
_LOCAL_HEADER = 30  # of a zip's member; its name and extra field follow


def is_archive(name: str) -> bool:
    return name.lower().endswith(_ENDINGS)


def starts_archive(start: bytes) -> bool:
    """Return whether unpacked bytes begin as an archive does."""
    return start.startswith(_ZIP) or start[257:262] == b"ustar"


def list_members(source: Source) -> list[Source]:
    """Return the files within an archive."""
    try:
        with source.open() as file:
            zipped = file.read(2) == _ZIP
        return _list_zip_members(source) if zipped else _list_tar_members(source)
    except TraceError as error:
        return [build_broken_source(source.name, str(error).removeprefix(f"{source.name}: "))]
    except Exception as error:  # zipfile and tarfile raise many kinds on damage
        return [build_broken_source(source.name, f"damaged archive: {spell_reason(error)}")]


def _list_zip_members(source: Source) -> list[Source]:
    import zipfile

    with source.open() as file, zipfile.ZipFile(file) as archive:
        entries = [e for e in archive.infolist() if not e.is_dir() and _is_file(e)]
    _check_limits(len(entries), sum(e.file_size for e in entries))
    return [
        _zip_member(source, e)
        for e in {e.filename: e for e in entries if _is_wanted(e.filename)}.values()
    ]


def _zip_member(source: Source, entry: "zipfile.ZipInfo") -> Source:
    if _points_outside(entry.filename):
        return build_broken_source(f"{source.name}!{entry.filename}", _OUTSIDE)
    packed = max(entry.compress_size, 1)
    if entry.file_size > _FREE_BYTES and entry.file_size > _MOST_RATIO * packed:
        try:
            _refuse_bomb(entry.filename, entry.file_size)
        except TraceError as error:
            return build_broken_source(source.name, str(error))
    return _build_member(
        source, entry.filename, entry.file_size, partial(_open_zipped, source, entry)
    )


def _is_file(entry: "zipfile.ZipInfo") -> bool:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    return kind in (0, stat.S_IFREG)


def _open_zipped(source: Source, entry: "zipfile.ZipInfo") -> BinaryIO:
    """Return a member's bytes, without reading the archive's list of members again."""
    import zipfile

    if entry.flag_bits & 1:
        raise TraceError(f"{source.name}!{entry.filename}: needs a password; unpack it first")
    file = source.open()
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER)
    beside = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    start = entry.header_offset + _LOCAL_HEADER + beside
    packed = cast(BinaryIO, Part(file, start, entry.compress_size))
    return cast(BinaryIO, zipfile.ZipExtFile(packed, "r", entry, close_fileobj=True))


def _list_tar_members(source: Source) -> list[Source]:
    """Members in order; of a cut or damaged tar those before the damage, then the damage."""
    import tarfile

    open_tar, damage = _find_plain_tar(source)
    members: dict[str, Source] = {}
    count = 0
    unpacked_bytes = 0
    with open_tar() as file, tarfile.open(fileobj=file, mode="r:") as archive:
        try:
            for entry in archive:
                count += 1
                unpacked_bytes += entry.size
                _check_limits(count, unpacked_bytes)
                # links and devices are not followed
                if entry.isfile() and _is_wanted(entry.name):
                    members[entry.name] = _tar_member(source, open_tar, entry)
        except (tarfile.TarError, EOFError) as error:
            damage = damage or spell_reason(error)
    if damage:
        why = f"damaged archive, {len(members)} members found: {damage}"
        return [*members.values(), build_broken_source(source.name, why)]
    return list(members.values())


def _find_plain_tar(source: Source) -> tuple[Callable[[], BinaryIO], str | None]:
    """Return how to open the tar's own bytes, and what is wrong with how they were packed."""
    with source.open() as file, open_stream(file) as stream:
        if type(stream) is Stream:
            return source.open, None
        kept = Spool.from_reader(source.name, stream.read1, unpack_limit())
        return kept.open, stream.damage


def _tar_member(
    source: Source, open_tar: Callable[[], BinaryIO], entry: "tarfile.TarInfo"
) -> Source:
    if _points_outside(entry.name):
        return build_broken_source(f"{source.name}!{entry.name}", _OUTSIDE)
    if entry.issparse():  # its bytes do not lie in one piece
        return build_broken_source(
            f"{source.name}!{entry.name}", "a sparse file; unpack the archive first"
        )
    open_ = partial(_open_tarred, open_tar, entry.offset_data, entry.size)
    return _build_member(source, entry.name, entry.size, open_)


def _open_tarred(open_tar: Callable[[], BinaryIO], offset: int, size: int) -> BinaryIO:
    return cast(BinaryIO, Part(open_tar(), offset, size))


def _build_member(source: Source, name: str, size: int, open_: Callable[[], BinaryIO]) -> Source:
    identity = None if source.identity is None else f"{source.identity}!{name}"
    return Source(f"{source.name}!{name}", open_, size, identity)


def _is_wanted(name: str) -> bool:
    """Not hidden."""
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.name.startswith(".") and "__MACOSX" not in path.parts


def _points_outside(name: str) -> bool:
    """Return whether it would leave the archive's folder, though nothing is ever written there."""
    path = PurePosixPath(name.replace("\\", "/"))
    drive = re.match(r"[A-Za-z]:(?:/|$)", str(path))
    return path.is_absolute() or ".." in path.parts or drive is not None


def _check_limits(members: int, unpacked_bytes: int) -> None:
    if not MEMBERS.believes(members):
        raise TraceError(f"more than {MEMBERS.most:,} members; unpack it first")
    limit = unpack_limit()
    if limit is not None and unpacked_bytes > limit:
        _refuse_bomb("all members", unpacked_bytes)


def _refuse_bomb(name: str, size: int) -> None:
    if unpack_limit() is not None:
        raise TraceError(
            f"{name} would unpack to {size:,} bytes: taken for a decompression bomb; set "
            "HTK_UNPACK_LIMIT=none if the archive is right"
        )
