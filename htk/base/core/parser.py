"""The contract of a parser: a module with a name, `sniff` and `parse`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from htk.base.mappings import NamedTables

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Source:
    """One file to be read, wherever it lies."""

    name: str  # the path or URL, as people know it
    open: Callable[[], BinaryIO]  # its bytes as stored (compressed or not)
    size: int | None = None  # stored bytes, where known
    identity: str | None = None  # changes whenever the content does; None: do not cache
    path: Path | None = None  # where the stored bytes lie on this machine, if they do

    @property
    def file_name(self) -> str:
        return self.name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Head:
    """The first bytes of a file, decompressed: all that `sniff` may look at."""

    name: str
    data: bytes
    is_complete: bool = False  # the data is the whole file


@dataclass(frozen=True)
class ParseOptions:
    """What a reader may ask of a parser."""

    keep_unknown_arguments: bool = False
    keep_overruns: bool = False  # GPU activities that last over their followers, as they are
    progress: Callable[[int], None] | None = None  # told the stored bytes read so far
    time_unit: str | None = None  # of times whose file does not say it: s, ms, us or ns
    keep: Callable[[pa.Table], pa.Table] = lambda table: table  # what is ready, out of memory
    entry: str = ""  # the key of an entry of a store, which no parser reads; empty: a file


@dataclass(frozen=True)
class Parsed:
    """What one file held.

    A table without a `rank` column belongs to the one rank of the file, which is given by `rank`
    or, where the file does not say (None), found by whoever opened it. A table with one knows
    best. `cycle` is always added later. Other processes that the same file recorded are `others`:
    each is a rank of its own, with its own ids and threads. So are further cycles of a process;
    they share its number, `process` in their facts.
    """

    tables: NamedTables
    rank: int | None = None
    world_size: int | None = None
    facts: Mapping[str, object] = field(default_factory=dict)  # columns of `ranks` that it knows
    others: tuple["Parsed", ...] = ()  # in the order of their ranks, after this one
    parser: str = ""  # name of the parser that read it, set by whoever opened the file


class Parser(Protocol):
    @property
    def NAME(self) -> str: ...

    def sniff(self, head: Head) -> bool: ...

    def parse(self, source: Source, options: ParseOptions) -> Parsed: ...
