"""Kineto files written anew, event by event: what trimming and scrubbing share."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
from isal import igzip

from htk.answers.export.trim import Trimmed, trimmed_file
from htk.base.core.parser import Source
from htk.base.errors import TraceError, UsageError
from htk.base.io.decompress import open_stream
from htk.base.io.sources import resolve_inputs
from htk.parsers import kineto
from htk.parsers.kineto import text
from htk.parsers.kineto.text import Copied, Entry, Event, Run
from htk.traces.trace.file import TraceFile
from htk.traces.trace.opening import Inputs, with_sample
from htk.traces.trace.trace import Trace


@dataclass(frozen=True)
class Written:
    """One file that was written, and what of its original is in it."""

    file: Path
    copied: Copied
    stored_bytes: int


def kineto_parts(parts: Iterable[TraceFile]) -> list[TraceFile]:
    """The profiler traces among the files, a part for each file and rank: cycles of one file are
    written together. Files of other recorders beside them are not written."""
    traces = [part for part in parts if part.format == kineto.NAME]
    if not traces:
        raise TraceError("no PyTorch profiler trace among the files, and only those can be written")
    return list({(part.file, part.rank): part for part in reversed(traces)}.values())[::-1]


def refuse_filled(folder: Path) -> None:
    """Refuse a folder that holds something: two recordings in one would be read as one."""
    first = next(folder.iterdir(), None) if folder.is_dir() else None
    if first is not None:
        raise UsageError(f"{folder}: holds {first.name} already; give a new or empty folder")


def sources_of(inputs: Inputs) -> dict[str, Source]:
    """Return the files that were opened, by name."""
    return {source.name: source for source in resolve_inputs(with_sample(inputs))}


def _of_rank(trace: Trace, part: TraceFile) -> Trimmed:
    """Return what of a file is the part's, where it may hold other ranks and cycles."""
    return trimmed_file(trace.sel(ranks=[part.rank or 0], cycles=[part.cycle]), part.file)


def write_for_hta(trace: Trace, sources: Mapping[str, Source], folder: Path) -> list[Written]:
    """Return a copy of each file that Holistic Trace Analysis finds the rank of: rank-R.json.gz.

    It looks for `"rank": R` with a blank in it, and takes the first file of a rank.
    """
    refuse_filled(folder)
    written = []
    for part in kineto_parts(trace.of_one_cycle.selected_files):
        rank = part.rank or 0

        def rewrite_rank(key: str, value: bytes, rank: int = rank) -> bytes:
            if key != "distributedInfo":
                return value
            members = msgspec.json.decode(value)
            return json.dumps(
                (members if isinstance(members, dict) else {}) | {"rank": rank}
            ).encode()

        target = folder / f"rank-{rank}.json.gz"
        own = _of_rank(trace, part)
        written.append(
            write_changed_copy(sources[part.file], target, rewrite_rank, own.event, own.header)
        )
    return written


def write_changed_copy(
    source: Source,
    target: Path,
    entry: Entry,
    event: Event,
    added: bytes = b"",
) -> Written:
    """Return a compressed copy of a file, changed on the way; it appears when it is whole."""
    with (
        source.open() as file,
        open_stream(file) as stream,
        part_of(target) as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
    ):
        copied = text.copy_changed(stream, packed.write, entry, event, added)
    return Written(target, copied, target.stat().st_size)


def write_runs(source: Source, target: Path, entry: Entry, run: Run) -> Written:
    """Return a compressed copy of a file, changed many events at a time, packed quicker."""
    with (
        source.open() as file,
        open_stream(file) as stream,
        part_of(target) as raw,
        quickly_packed(raw) as packed,
    ):
        copied = text.copy_runs(stream, packed.write, entry, run)
    return Written(target, copied, target.stat().st_size)


def quickly_packed(raw: BinaryIO) -> gzip.GzipFile:
    """Return a stream that packs at some 300 MB/s into files a third larger than the smallest."""
    packed: gzip.GzipFile = igzip.IGzipFile("", "wb", 2, raw, mtime=0)  # type: ignore[no-untyped-call]
    return packed


@contextmanager
def part_of(target: Path) -> Iterator[BinaryIO]:
    """A new file, which appears under its name when it is whole."""
    if target.exists():
        raise UsageError(f"{target}: is there already; give another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(target.name + ".part")
    try:
        with half.open("wb") as raw:
            yield raw
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)
