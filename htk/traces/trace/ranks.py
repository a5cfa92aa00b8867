"""Which rank each recording is of: from the file, its name, a pattern, or its GPU."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from htk.base.core.humanize import format_int_ranges
from htk.base.errors import UnknownRank, UsageError
from htk.base.io.sources import rank_from_name
from htk.base.schema import TABLES
from htk.traces.trace.file import FileRecording

_BESIDE_OTHERS = (
    "execution_trace",
    "kernel_stacks",
)  # they say more of what another file of the rank holds
_IN_ORDER_OF_NAMES = {"xplane"}  # files called by their hosts, of which each is one process
UNKNOWN = (None, "unknown")
_PATTERN = "{}; give a pattern whose group finds it in the name: --rank-pattern 'node-(\\d+)'"
_CALLED_BY_RANK = ("flight_recorder",)  # files called by some prefix and the rank, no more


class RankedFile(NamedTuple):
    """A recording, its rank, and how that is known."""

    recording: FileRecording
    rank: int | None
    rank_from: str


def with_ranks(
    read: list[FileRecording], only_rank: int | None, pattern: str | None
) -> list[RankedFile]:
    """Return the rank of each file and how it is known; never a guess between several files.

    UNKNOWN stands for files that say none, beside files of other formats that do: the answers of
    those do not miss them.
    """
    ranks = [_rank_of(item, pattern) for item in read]
    lost = [k for k, (rank, _) in enumerate(ranks) if rank is None and _needs_rank(read[k])]
    if lost and len({i.source.name for i in read if i.parser not in _BESIDE_OTHERS}) == 1:
        alone = len({read[k].process for k in lost}) == 1
        guess = "guess: only file" if alone else "guess: order in the file"
        first, rank_from = (0, guess) if only_rank is None else (only_rank, "given")
        for k in lost:
            ranks[k] = (first + read[k].process, rank_from)
    elif lost and (by_device := _ranks_by_device([read[k] for k in lost])):
        for k, rank in zip(lost, by_device, strict=True):
            ranks[k] = (rank, "GPU of the host")
    elif lost and {read[k].parser for k in lost} == _IN_ORDER_OF_NAMES:
        for rank, k in enumerate(sorted(lost, key=lambda k: read[k].source.name)):
            ranks[k] = (rank, "guess: order of names")
    elif lost:
        ranked_formats = {read[k].parser for k, (rank, _) in enumerate(ranks) if rank is not None}
        if not ranked_formats or any(read[k].parser in ranked_formats for k in lost):
            raise UnknownRank(_no_rank([read[k] for k in lost], len(read)))
        for k in lost:
            ranks[k] = UNKNOWN
    stated = sorted(
        {rank for rank, rank_from in ranks if rank is not None and rank_from != "given"}
    )
    if only_rank is not None and stated not in ([], [only_rank]):
        named = format_int_ranges(stated)
        raise UsageError(
            f"--rank {only_rank} is for one file that does not say its rank; these say theirs"
            f" ({named}): choose among them by --ranks"
        )
    return [RankedFile(item, *rank) for item, rank in zip(read, ranks, strict=True)]


def without_a_rank(item: FileRecording) -> str:
    """Return why a file of unknown rank was left out."""
    return f"{item.source.name}: {_PATTERN.format('it does not say which rank it is')}"


def _no_rank(lost: Sequence[FileRecording], count: int) -> str:
    names = ", ".join(item.source.file_name for item in lost[:3])
    more = ", …" if len(lost) > 3 else ""
    return _PATTERN.format(
        f"{len(lost)} of {count} files do not say which rank they are ({names}{more})"
    )


def _ranks_by_device(read: list[FileRecording]) -> list[int] | None:
    """The GPU of each recording, if all are of one host and each has a GPU of its own that its
    format numbers as the host does."""
    facts = [item.entry.parsed.facts for item in read]
    devices = [f.get("host_device") for f in facts]
    hosts = {f.get("host") for f in facts}
    recorded = [d for d in devices if isinstance(d, int)]
    alone = len(hosts) == 1 and None not in hosts and len(set(recorded)) == len(read)
    return recorded if alone else None


def _rank_of(item: FileRecording, pattern: str | None) -> tuple[int | None, str]:
    """A name gives the rank of a file's first process; its others count on from there."""
    if pattern is not None:
        matched = _rank_by_pattern(item.source.name, pattern)
        return None if matched is None else matched + item.process, "given"
    parsed = item.entry.parsed
    if parsed.rank is not None:
        return parsed.rank, str(parsed.facts.get("rank_from") or "distributedInfo")
    named = rank_from_name(item.source.name)
    if named is None and item.parser in _CALLED_BY_RANK:
        named = _rank_at_end(item.source.name)
    return (named + item.process, "file name") if named is not None else (None, "")


def _rank_at_end(name: str) -> int | None:
    """The digits that end a name, before `.json` if it has that: how flight recorder dumps are
    called."""
    match = re.search(r"(?:^|[\\/!])[^.\\/!]*?(\d{1,7})(?:\.json)?$", name)
    return int(match[1]) if match else None


def _rank_by_pattern(name: str, pattern: str) -> int | None:
    try:
        match = re.search(pattern, name)
        return int(match[1]) if match else None
    except (re.error, IndexError, OverflowError, TypeError, ValueError) as error:
        raise UnknownRank(f"--rank-pattern {pattern!r}: {error}") from None


def _needs_rank(item: FileRecording) -> bool:
    """Return whether any of its tables speaks of a rank without naming it."""
    exempt = ("ranks", "parse_issues")
    return item.parser not in _BESIDE_OTHERS and any(
        name not in exempt and "rank" in TABLES[name].names and "rank" not in table.column_names
        for name, table in item.entry.tables.items()
        if table.num_rows
    )
