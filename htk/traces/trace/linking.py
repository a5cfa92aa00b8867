"""A table of each of a recording's files. What is made of small files is made of some dozen at
once before each is asked for its own."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from htk.base.schema import TABLES
from htk.quantities.derived.together import LINKS, MADE_TOGETHER, links_for, made_together
from htk.traces.trace.file import TraceFile
from htk.traces.trace.joined import are_small

Table = TypeVar("Table", pa.Table, pa.Table | None)

# Files at once: of fewer it does not pay, of more their tables lie in memory.
_FEWEST = 4
_MOST = 64


def of_each(
    files: Sequence[TraceFile], read: Callable[[TraceFile, str], Table], name: str
) -> list[Table]:
    """Return a table of each file; what has to be made is made side by side."""

    def of_file(file: TraceFile) -> Table:
        table = read(file, name)
        if not file.keeps_small:  # of many files what was opened for it takes more than it does
            file.entry.release_parsed()
        return table

    if name in TABLES:
        return [of_file(file) for file in files]
    if are_small(name, files):
        return [of_file(file) for batch in _linked_together(name, files) for file in batch]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(of_file, files))


def _linked_together(name: str, files: Sequence[TraceFile]) -> Iterator[Sequence[TraceFile]]:
    """Yield the files in batches, once what a table of them is or is made of is made; of files
    whose tables are kept joined all links, of which most will be asked for, and with idle time
    stalls, which explain it. What was made of a batch is taken before the next is made."""
    for first in range(0, len(files), _MOST):
        batch = files[first : first + _MOST]
        _make_links(name, batch)
        yield batch


def _make_links(name: str, files: Sequence[TraceFile]) -> None:
    is_joined = not files[0].keeps_small
    likely = asked = {*links_for(name)}
    if is_joined:
        likely = {*MADE_TOGETHER} if asked - LINKS.keys() else asked | LINKS.keys()
    for file in _link_files(name, likely, files):
        if is_joined:
            file.entry.release_parsed()


def _link_files(
    name: str, likely: Collection[str], files: Sequence[TraceFile]
) -> Sequence[TraceFile]:
    """Make of files that lack a table, or what it is made of, all that is likely to be asked for;
    return these files."""
    asked = links_for(name)
    lacking = [f for f in files if f.entry.lacks(name) and any(map(f.entry.lacks, asked))]
    if len(lacking) < _FEWEST:
        return []
    lacks = {n for n in likely if any(f.entry.lacks(n) for f in lacking)}
    # Links are made of links as these are made, with threads numbered through all files.
    wanted = lacks | {link for n in lacks & LINKS.keys() for link in links_for(n)}
    for table_name, tables in made_together([f.own_or_empty for f in lacking], wanted).items():
        for file, table in zip(lacking, tables, strict=True):
            file.entry.offer(table_name, table)
    return lacking


class LinkedFiles:
    """Whole recordings that are to be cut: what of them links one table to others is made of some
    dozen at once, when the first is asked for its own."""

    def __init__(self, files: Sequence[TraceFile]) -> None:
        self._files = files
        self._linked: set[str] = set()

    def read(self, file: TraceFile, name: str) -> pa.Table:
        """Return a table as the file has it; empty where it has none."""
        if name in LINKS and name not in self._linked:
            self._linked.add(name)
            if are_small(name, self._files):
                _link_files(name, links_for(name), self._files)
        return file.own_or_empty(name)


def linked_files(files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, LinkedFiles]]:
    """Yield each file with those whose links are made with its own."""
    for first in range(0, len(files), _MOST):
        batch = files[first : first + _MOST]
        linked = LinkedFiles(batch)
        for file in batch:
            yield file, linked
