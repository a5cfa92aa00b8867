"""Tables of several files, or of a part of each, of recordings from outside: made in a process with
limits, as the files were read. One process makes those of a recording, as long as it is open."""

import pickle
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import PurePath

import pyarrow as pa

from htk.base.core.parser import Source
from htk.base.io.raw_files import build_broken_source
from htk.quantities.derived import registry
from htk.traces.trace.confined import ConfinedReaders, ConfinedTask, limits_of
from htk.traces.trace.file import TraceFile
from htk.traces.trace.joined import JoinedTables
from htk.traces.trace.selection import Selection

_KEPT_BY_FILES = {*registry.PER_FILE} - {*registry.VIEWS, *registry.EXTENTS}
_number = partial(next, count())


@dataclass(frozen=True)
class WholeRecording:
    """All that tables of a recording are made of."""

    files: tuple[TraceFile, ...]
    joined: JoinedTables | None
    began_ns: int | None
    number: int = field(default_factory=_number)

    def pack(self) -> bytes:
        """Return it as it travels: entries of the cache are names of folders."""
        return pickle.dumps((self.files, self.joined, self.began_ns))

    @property
    def source(self) -> Source:
        """What the limits are of, and an error names."""
        folder = str(PurePath(self.files[0].file).parent)
        entries = [file.entry for file in self.files]
        size = sum(entry.size_bytes(table) for entry in entries for table in entry.tables)
        return Source(folder, build_broken_source(folder, "no file").open, size)


class ConfinedTables:
    """Asks a process for tables of a recording."""

    def __init__(self) -> None:
        self._readers = ConfinedReaders(())
        weakref.finalize(self, self._readers.stop)

    def make(self, recording: WholeRecording, selection: Selection, name: str) -> pa.Table:
        """Return a table of a part of a recording."""
        source = recording.source
        limits = limits_of(source.size or 0)
        facts = {
            "table": name,
            "name": f"{source.name}: {name}",
            "recording": recording.number,
            "selection": pickle.dumps(selection).hex(),
            "cpu_seconds": limits.cpu_seconds,
            "memory_bytes": limits.memory_bytes,
        }
        answer = self._readers.ask(
            ConfinedTask(source, facts, limits, recording=recording.pack, done="made")
        )
        assert answer is not None, "it is of no file, and no entry of the cache"
        return answer[0].made[name]


def is_made_anew(name: str, files: Sequence[TraceFile], selection: Selection) -> bool:
    """Return whether a table of each file is not there yet, and more than a look at it."""
    if name not in _KEPT_BY_FILES:
        return False
    return selection.narrows or any(file.entry.lacks(name) for file in files)
