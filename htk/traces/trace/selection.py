"""The part of a trace that is looked at: which recordings, and which part of each.

What that leaves of a recording is decided by `htk.traces.trace.cut`, for every table at once.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from htk.base.core.humanize import (
    format_duration,
    format_int_ranges,
    parse_int_ranges,
    parse_pattern,
)
from htk.base.core.recording_hints import describe_contents
from htk.base.errors import MissingTable, UsageError
from htk.base.io.entry import MemoryEntry
from htk.base.mappings import NamedTables
from htk.quantities.derived.cut_header import BY_ACTIVITY
from htk.traces.trace.cut import OF_ACTIVITIES, UNPLACED, Chosen, CutFacts, CutRecording
from htk.traces.trace.file import TraceFile
from htk.traces.trace.linking import LinkedFiles, linked_files


@dataclass(frozen=True)
class Selection:
    """The part of the trace that is looked at. Times are ns from the recording's start."""

    ranks: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    annotation: str | None = None
    cycles: frozenset[int] | None = None
    name: str | None = None  # of GPU activities, a regular expression
    streams: frozenset[int] | None = None
    since_serving: bool = False  # from_ns is where a server begins to serve, which nobody asked for

    @property
    def as_asked(self) -> "Selection":
        """The part of the selection that somebody asked for."""
        return replace(self, from_ns=None, since_serving=False) if self.since_serving else self

    def serving_from(self, start_ns: int | None) -> "Selection":
        """Return the selection without what a server does before it serves, unless it chooses
        times, steps or recordings itself."""
        chosen = (self.steps, self.from_ns, self.to_ns, self.cycles)
        if start_ns is None or any(choice is not None for choice in chosen):
            return self
        return replace(self, from_ns=start_ns, since_serving=True)

    @property
    def of_files(self) -> "Selection":
        """The part of the selection that chooses recordings, and leaves each whole."""
        return Selection(self.ranks, cycles=self.cycles)

    @property
    def of_times(self) -> "Selection":
        """The part of the selection that narrows each recording, and leaves all of them."""
        return replace(self, ranks=None, cycles=None)

    @property
    def narrows(self) -> bool:
        """Whether the selection leaves out part of a recording."""
        of_times = (self.steps, self.from_ns, self.to_ns, self.annotation)
        return self.chooses_activities or any(choice is not None for choice in of_times)

    @property
    def chooses_activities(self) -> bool:
        """Whether GPU activities are chosen by what they are, and not by when."""
        return self.name is not None or self.streams is not None


EVERYTHING = Selection()
_FIRST_STEPS = re.compile(r"\s*first:([1-9]\d{0,8})\s*")


def steps_named(steps: Sequence[int] | str, recorded: Callable[[], set[int]]) -> frozenset[int]:
    """Return steps by their numbers, or of those that are known the first ones."""
    if not isinstance(steps, str):
        return frozenset(steps)
    match = _FIRST_STEPS.fullmatch(steps)
    if match is None:
        return frozenset(parse_int_ranges(steps))
    if not recorded():
        raise MissingTable(f"steps {steps}: no steps were recorded")
    return frozenset(sorted(recorded())[: int(match[1])])


def in_words(
    chosen: Selection, ranks: Sequence[int], cycles: Sequence[int], steps: Sequence[int]
) -> str:
    """Return the selection in words, beside what there is to choose from."""
    words = []
    for name, numbers, every in (
        ("ranks", chosen.ranks, ranks),
        ("cycles", chosen.cycles, cycles),
        ("steps", chosen.steps, steps),
    ):
        if numbers is not None:
            there = format_int_ranges(every) or "none"
            words.append(f"{name} {format_int_ranges(list(numbers))} (of {there})")
    if chosen.from_ns is not None and not chosen.since_serving:
        words.append(f"times from {format_duration(chosen.from_ns)} on")
    if chosen.to_ns is not None:
        words.append(f"times up to {format_duration(chosen.to_ns)}")
    if chosen.annotation is not None:
        words.append(f"user ranges called {chosen.annotation!r}")
    if chosen.name is not None:
        words.append(f"GPU activities called {chosen.name!r}")
    if chosen.streams is not None:
        words.append(f"streams {format_int_ranges(list(chosen.streams))}")
    return ", ".join(words)


def is_by_activity(chosen: Selection, files: Sequence[TraceFile]) -> bool:
    """Return whether GPU activities are chosen by what they are, here or when files were cut."""
    trimmed = (file.entry.parsed.facts for file in files)
    return chosen.chooses_activities or any(BY_ACTIVITY in facts for facts in trimmed)


def refuse_uncut(
    name: str, chosen: Selection, files: Sequence[TraceFile], in_words: Callable[[], str]
) -> None:
    """Refuse to narrow a table that a choice leaves whole, or that does not say when it was."""
    if chosen.narrows and name in UNPLACED and any(file.entry.rows(name) for file in files):
        raise UsageError(
            f"{describe_contents(name)} cannot be narrowed to {in_words()}: "
            "they do not say when they were within the recording"
        )
    if name not in OF_ACTIVITIES and is_by_activity(chosen, files):
        raise UsageError(
            f"only questions about kernels alone, e.g. kernel-top, can be narrowed to "
            f"chosen activities ({in_words() or 'htk trim chose them'}): not those about the host "
            "or idle time"
        )


class _CutTables(NamedTables):
    """Tables of a recording, each cut when it is first asked for."""

    def __init__(self, cut: CutRecording, uncut: NamedTables) -> None:
        self._cut = cut
        self._names = {**dict.fromkeys(uncut), "cut_windows": None, "passing": None}
        self._made: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._cut.table(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def cut_of(
    file: TraceFile, selection: Selection, origin_ns: int, beside: LinkedFiles | None = None
) -> CutRecording:
    """Return what a selection leaves of a file, which is read `beside` others; its times count from
    the origin."""
    ranges = (
        None if selection.annotation is None else parse_pattern(selection.annotation, "annotation")
    )
    name = None if selection.name is None else parse_pattern(selection.name, "name")
    times = (selection.from_ns, selection.to_ns)
    since = origin_ns - file.shift_ns
    from_ns, to_ns = (None if time is None else since + time for time in times)
    chosen = Chosen(
        selection.steps,
        from_ns,
        to_ns,
        ranges,
        keeps_captures=selection.since_serving,
        names=name,
        streams=selection.streams,
    )
    read = file.own_or_empty if beside is None else partial(beside.read, file)
    return CutRecording(read, file.entry.parsed.facts, chosen)


def nothing_of(file: TraceFile) -> CutRecording:
    """Return a cut that leaves nothing of a file."""
    chosen = Chosen(frozenset(), None, None, None)
    return CutRecording(file.own_or_empty, file.entry.parsed.facts, chosen)


def narrow_files(
    files: Sequence[TraceFile], selection: Selection, origin_ns: int
) -> Iterator[TraceFile]:
    """Yield files as if `htk trim` had written them."""
    for file, beside in linked_files(files):
        cut = cut_of(file, selection, origin_ns, beside)
        tables = _CutTables(cut, file.entry.tables)
        parsed = replace(file.entry.parsed, tables=tables, facts=CutFacts(cut))
        yield replace(file, entry=MemoryEntry(parsed), keeps_small=True)
