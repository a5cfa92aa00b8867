"""What a user names (files, folders, globs, archives, `-`, URLs) as an ordered list of sources."""

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from htk.base.core.humanize import shorten_text
from htk.base.core.parser import HEAD_BYTES, Head, Source
from htk.base.errors import TraceError, UsageError
from htk.base.io import archives, remote
from htk.base.io.decompress import open_stream
from htk.base.io.raw_files import Spool, build_broken_source, open_guarded, spell_reason

STDIN_LIMIT = 64 << 30
# Files that lie beside traces and are never one.
_OTHERS = re.compile(
    r"\.(py|pyc|toml|md|rst|html?|css|js|png|jpe?g|svg|gif|pdf|tsv|xlsx|arrow"
    r"|pt|pth|safetensors|bin|so|whl|ipynb|lock)$",
    re.IGNORECASE,
)
_MOST_BLANKS = 1 << 30  # before what a file holds
_REPORTS = (".nsys-rep", ".qdrep")
_TIMELINE = ".trace.json.gz"
_ASCEND_FOLDER, _ASCEND_TIMELINE = "ASCEND_PROFILER_OUTPUT", "trace_view.json"
_ASCEND_DATABASE = re.compile(r"ascend_pytorch_profiler(?:_\d+)?\.db")
_ASCEND_FACTS = re.compile(r"profiler_(?:info(?:_\d+)?|metadata)\.json")
_ASCEND_KERNELS = "kernel_details.csv"
_ASCEND_SUMS = re.compile(r"analysis\.db|communication(_matrix)?\.json|.*\.csv")
_NSIGHT = (
    "a report of Nsight Systems, which htk reads as an SQLite export; write one with: "
    "nsys export --type sqlite {name}"
)
# The rank in a file's name: after the word rank or worker. A pid or a time stamp is none, nor is
# a rank within a node or a parallel group.
_RANK = re.compile(r"(?:([a-z]+)[-_. ]?)?(?<![a-z])rank[-_ =]?(\d{1,6})(?!\d)", re.IGNORECASE)
_OTHER_RANKS = {"local", "node", "group", "tp", "dp", "pp", "ep", "cp", "sp", "dcp", "pcp"}
_RANK_FOLDER = re.compile(r"rank[-_ =]?(\d{1,6})", re.IGNORECASE)
_WORKER = re.compile(r"^worker[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
# torch's default, <host>_<pid>.<ns>, on a host called worker-3: eight ranks may share it.
_WORKER_HOST = re.compile(
    r"^worker[-_]?\d+(\.[\w.-]+)?_\d+\.\d{10,}\.pt\.trace\.json", re.IGNORECASE
)
# SGLang names the tensor-parallel rank, and others only where there are more dimensions.
_SGLANG = re.compile(r"-TP-(\d{1,6})(?:-EP-\d+)?(?:-[A-Z]+)?\.trace\.json")


def resolve_inputs(
    inputs: str | Path | Sequence[str | Path], within: Sequence[Path] = ()
) -> list[Source]:
    """Return every file that the inputs name, each once, in the order they were named.

    One that cannot be used (a damaged archive, say) is there too, and says why when opened. With
    `within`, files on this machine are read below these folders only: wherever a path leads by
    links or `..`, the file that would be opened is what counts.
    """
    listed = [inputs] if isinstance(inputs, str | Path) else inputs
    if not isinstance(listed, Sequence) or not all(isinstance(p, str | Path) for p in listed):
        raise UsageError(
            f"a path or a list of paths is expected, not {shorten_text(repr(inputs), 60)}"
        )
    names = list(dict.fromkeys(map(str, listed)))
    sources: dict[str, Source] = {}
    for name in names:
        for source in _list_named_sources(name, tuple(within)):
            sources.setdefault(source.identity or f"{name}|{source.name}", source)
    if not sources:
        raise TraceError(f"{', '.join(names) or 'no path'}: no file that may be a trace")
    return [replace(s, open=partial(open_guarded, s.name, s.open)) for s in sources.values()]


def locate_within(path: Path, folders: Sequence[Path]) -> Path | None:
    """Return the real path of what exists below a folder, links followed first; None: it lies
    elsewhere, or there is no such path."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # nothing, loops of links, overlong names, NUL
        return None
    return real if any(real.is_relative_to(folder.resolve()) for folder in folders) else None


def read_head(source: Source) -> Head:
    """Return the first bytes of a source, decompressed; blanks before them are passed over."""
    with source.open() as file, open_stream(file) as stream:
        data = stream.read(HEAD_BYTES)
        skipped = 0
        while len(data) == HEAD_BYTES and not data.strip() and skipped < _MOST_BLANKS:
            skipped += len(data)
            data = stream.read(HEAD_BYTES)
        if skipped and len(data) == HEAD_BYTES:
            data = data.lstrip()
            data += stream.read(HEAD_BYTES - len(data))
        if stream.damage and not data.strip():
            raise TraceError(f"{source.name}: {stream.damage}")
    return Head(source.name, data, not skipped and len(data) < HEAD_BYTES)


def rank_from_name(name: str) -> int | None:
    """The global rank that a file's name states, else the folder it lies in; None if unsure."""
    *folders, file = re.split(r"[\\/!]", name)
    named = [m for m in _RANK.finditer(file) if (m[1] or "").lower() not in _OTHER_RANKS]
    if named:
        ranks = {int(m[2]) for m in named}
        return ranks.pop() if len(ranks) == 1 else None
    worker = None if _WORKER_HOST.match(file) else _WORKER.match(file)
    match = worker or _SGLANG.search(file)
    for folder in reversed(folders):
        match = match or _RANK_FOLDER.fullmatch(folder)
    return int(match[1]) if match else None


def content_identity(source: Source) -> str:
    """Return a hash of the stored bytes, for who does not trust times and sizes."""
    digest = hashlib.sha256()
    with source.open() as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _list_named_sources(name: str, within: tuple[Path, ...]) -> list[Source]:
    if not name:  # what a variable that is not set leaves of "$RUN", not the current folder
        raise TraceError("a path is empty; `.` names the current folder")
    if name == "-":
        return _spool_pipe("-", sys.stdin.buffer)
    if name.startswith("file://"):
        name = unquote(urlsplit(name).path)
    if remote.is_url(name):
        return [
            s
            for source in remote.list_remote_sources(name, _may_be_trace)
            for s in _with_members(source)
        ]
    try:
        return _list_local_sources(name, Path(name).expanduser(), within)
    except OSError as error:
        raise TraceError(f"{name}: {spell_reason(error)}") from error
    except RuntimeError:  # ~somebody without a home, or links in a circle
        raise TraceError(f"{name}: no such file or folder") from None


def _list_local_sources(name: str, path: Path, within: tuple[Path, ...]) -> list[Source]:
    if path.is_dir():
        return list(_list_folder_sources(path, within))
    if path.is_file():
        return _with_members(_build_file_source(path, within))
    if path.is_fifo() and not within:  # <(gunzip -c x) of a shell
        with path.open("rb") as pipe:
            return _spool_pipe(name, pipe)
    if path.exists():
        raise TraceError(f"{name}: neither a file nor a folder")
    if any(c in name for c in "*?["):
        return [
            s
            for match in _match_pattern(str(path))
            for s in _list_local_sources(match, Path(match), within)
        ]
    raise TraceError(f"{name}: no such file or folder")


def _match_pattern(pattern: str) -> list[str]:
    import glob

    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise TraceError(f"{pattern}: nothing matches")
    return matches


def _list_folder_sources(folder: Path, within: tuple[Path, ...]) -> Iterator[Source]:
    """Files below a folder that may be traces; links to folders are not followed."""
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        for file in sorted(files):
            path = Path(directory) / file
            if _may_be_trace(file) and path.is_file() and not _is_exported(path):
                yield from _with_members(_build_file_source(path, within))


def _is_exported(path: Path) -> bool:
    """Return whether what a file recorded lies beside it in the form that is read: a report of
    Nsight Systems as SQLite, JAX's timeline as its planes, what Ascend's profiler made it from, its
    database beside its timeline, its table of kernels beside either, and its sums."""
    if path.name == _ASCEND_KERNELS:  # in folders of any name, as people copy them
        names = [other.name for other in path.parent.iterdir()]
        return _ASCEND_TIMELINE in names or any(map(_ASCEND_DATABASE.fullmatch, names))
    if path.parent.name == _ASCEND_FOLDER:
        if _ASCEND_DATABASE.fullmatch(path.name):
            return path.with_name(_ASCEND_TIMELINE).is_file()
        return _ASCEND_SUMS.fullmatch(path.name) is not None
    if _ASCEND_FACTS.fullmatch(path.name) and path.with_name(_ASCEND_FOLDER).is_dir():
        return True
    raw = next((folder for folder in path.parents if folder.name.startswith("PROF_")), None)
    if raw is not None and raw.with_name(_ASCEND_FOLDER).is_dir():
        return True
    if path.name.endswith(_TIMELINE):
        return path.with_name(path.name.removesuffix(_TIMELINE) + ".xplane.pb").is_file()
    return path.suffix in _REPORTS and path.with_suffix(".sqlite").is_file()


def _may_be_trace(name: str) -> bool:
    file = name.rsplit("/", 1)[-1]
    return bool(file) and not file.startswith(".") and not _OTHERS.search(file)


def _with_members(source: Source) -> list[Source]:
    """Return the source, or what it holds if it is an archive."""
    if source.name.endswith(_REPORTS):
        return [build_broken_source(source.name, _NSIGHT.format(name=source.file_name))]
    return _list_archive_members(source) if archives.is_archive(source.name) else [source]


def _list_archive_members(source: Source) -> list[Source]:
    within = [m for m in archives.list_members(source) if _may_be_trace(m.name)]
    return within or [build_broken_source(source.name, "no file in it that may be a trace")]


def _build_file_source(path: Path, within: tuple[Path, ...]) -> Source:
    resolved = locate_within(path, within) if within else path.resolve()
    if resolved is None:
        return build_broken_source(
            make_printable(path), "leads out of the folders that may be read"
        )
    facts = resolved.stat()
    changed = f"{facts.st_mtime_ns}|{facts.st_ctime_ns}"  # the second cannot be set back
    identity = f"{make_printable(resolved)}|{facts.st_size}|{changed}|{facts.st_ino}"
    return Source(
        make_printable(path), partial(_open_file, resolved), facts.st_size, identity, resolved
    )


def make_printable(path: Path) -> str:
    """Return a path as valid text: names on disk are bytes of any kind."""
    return os.fsencode(path).decode("utf8", "backslashreplace")


def _open_file(path: Path) -> BinaryIO:
    return path.open("rb", buffering=0)


def _spool_pipe(name: str, pipe: BinaryIO) -> list[Source]:
    """Return a pipe, kept in a file: it has to be looked at before it is read."""
    kept = Spool.from_reader(name, pipe.read, STDIN_LIMIT)
    source = Source(name, kept.open, kept.size)
    return (
        _list_archive_members(source)
        if archives.starts_archive(read_head(source).data)
        else [source]
    )
