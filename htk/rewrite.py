"""Kineto files written anew, event by event: what trimming and scrubbing share."""

import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from htk.errors import TraceError, UsageError
from htk.opening import Inputs, with_sample
from htk.parser import Source
from htk.parsers import kineto
from htk.parsers.kineto import text
from htk.parsers.kineto.text import Copied, Entry, Event
from htk.sources import resolve
from htk.streams import open_stream
from htk.trace import Part


@dataclass(frozen=True)
class Written:
    """One file that was written, and what of its original is in it."""

    file: Path
    copied: Copied
    stored_bytes: int


def kineto_parts(parts: Iterable[Part]) -> list[Part]:
    """The profiler traces among the files; other formats cannot be written anew."""
    found = [part for part in parts if part.format == kineto.NAME]
    if not found:
        raise TraceError("no PyTorch profiler trace among the files, and only those can be written")
    return found


def sources_of(inputs: Inputs) -> dict[str, Source]:
    """The files that were opened, by name."""
    return {source.name: source for source in resolve(with_sample(inputs))}


def write(
    source: Source,
    target: Path,
    entry: Entry,
    event: Event,
    progress: Callable[[int], None] | None = None,
) -> Written:
    """A compressed copy of a file, changed on the way; it appears when it is whole."""
    if target.exists():
        raise UsageError(f"{target}: is there already; give an empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(target.name + ".part")
    try:
        with (
            source.open() as file,
            open_stream(file) as stream,
            half.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        ):
            copied = text.copy(stream, packed.write, entry, event, progress)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
    return Written(target, copied, target.stat().st_size)
