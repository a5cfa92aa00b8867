"""What is verified: a trace, the files behind it, and the answers that the checks compare."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.answers.ask import ask_trace
from htk.answers.output.coverage_text import MENDED, damage_words
from htk.base.core.parser import Source
from htk.base.core.recording_hints import describe_contents
from htk.base.errors import MissingTable
from htk.base.io.sources import resolve_inputs
from htk.base.mappings import Fields
from htk.traces.trace.opening import Inputs, OpenOptions, open_trace, with_sample
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.narrowed import Choice, facts_of, list_choices
from htk.verdicts.verify.reading import read_events
from htk.verdicts.verify.tally import NotApplicable
from htk.verdicts.verify.totals import Facts, File, merge_facts

LARGEST_BYTES = 256 << 20
_KINETO = "kineto"

Rows = dict[tuple[Any, ...], Fields]


@dataclass(frozen=True)
class Second:
    """The second reading of all files that could be read a second time."""

    facts: Facts
    ranks: frozenset[int | None]  # whose every file was read
    read_bytes: int
    left_out: tuple[str, ...]  # files that were not, and why
    narrowed: tuple[tuple[Choice, Facts], ...]  # the same of what selections leave


@dataclass
class Subject:
    """A trace to be verified, with every answer asked for once."""

    inputs: Inputs
    options: OpenOptions = field(default_factory=OpenOptions)
    largest_bytes: int = LARGEST_BYTES
    quick: bool = False  # no second reading, nothing opened a second time

    @cached_property
    def trace(self) -> Trace:
        return open_trace(self.inputs, self.options)

    def open(self) -> None:
        """Open the trace now, so that what cannot be opened fails at once."""
        _ = self.trace

    @cached_property
    def files(self) -> list[Fields]:
        """A row of table `ranks` for each file."""
        rows: list[Fields] = self.trace.tables["ranks"].to_pylist()
        return rows

    @cached_property
    def host_ranges(self) -> list[Fields]:
        """User ranges on the CPU, the profiler's steps among them."""
        names = ["rank", "process", "thread", "name", "step", "start_ns", "end_ns", "on_gpu"]
        rows = self.trace.tables["annotations"].select(names).to_pylist()
        return [row for row in rows if not row["on_gpu"]]

    @cached_property
    def sources(self) -> dict[str, Source]:
        return {source.name: source for source in resolve_inputs(with_sample(self.inputs))}

    @cached_property
    def profiles(self) -> list[Fields]:
        """The files that PyTorch's profiler wrote."""
        return [row for row in self.files if row["format"] == _KINETO]

    @cached_property
    def _answers(self) -> dict[Hashable, pa.Table]:
        return {}

    def answer(self, name: str, **options: Any) -> pa.Table:
        """Return the answer to a question; NotApplicable where the trace holds no such data."""
        key = name, *sorted(options.items())
        if key not in self._answers:
            self._answers[key] = answer_of(self.trace, name, **options)
        return self._answers[key]

    def answer_or_none(self, name: str, **options: Any) -> pa.Table | None:
        try:
            return self.answer(name, **options)
        except NotApplicable:
            return None

    @cached_property
    def second(self) -> Second:
        """Every file read a second time, one after the other, so that only sums are kept."""
        if self.quick:
            raise NotApplicable("--quick leaves out the second reading")
        if not self.profiles:
            raise NotApplicable("no profiler trace: only those are read a second time")
        facts: Facts = {}
        narrowed: list[tuple[Choice, Facts]] = [(choice, {}) for choice in list_choices(self.trace)]
        left_out: list[str] = []
        lost: set[int | None] = set()
        read_bytes = 0
        kinds = self._read_kinds()
        cycles = Counter((row["file"], row["rank"]) for row in self.profiles)
        ranks_within = Counter(file for file, _ in cycles)
        for row in self.profiles:
            source = self.sources.get(row["file"])
            try:
                if source is None:
                    raise NotApplicable(f"{row['file']} cannot be read twice")
                if ranks_within[row["file"]] > 1:
                    raise NotApplicable(f"{row['file']} holds several ranks, not told apart here")
                if cycles[row["file"], row["rank"]] > 1:
                    raise NotApplicable(f"{row['file']} holds several cycles, which are not cut")
                if damage := self._describe_mended(row["file"]):
                    raise NotApplicable(f"{row['file']} is damaged: {damage}")
                recording = read_events(source, self.largest_bytes)
                read_bytes += recording.read_bytes
                file = File(recording, row["rank"], kinds, row["cycle"])
                merge_facts(facts, file.facts())
                for choice, left in narrowed:
                    merge_facts(left, facts_of(file, choice))
            except NotApplicable as reason:
                if str(reason) not in left_out:  # once a file, however many cycles it holds
                    left_out.append(str(reason))
                lost.add(row["rank"])
        ranks = frozenset(row["rank"] for row in self.profiles) - lost
        if not ranks:
            raise NotApplicable("; ".join(left_out[:3]))
        return Second(facts, ranks, read_bytes, tuple(left_out), tuple(narrowed))

    def _describe_mended(self, file: str) -> str:
        """Return what the file holds that was mended here, and is not in a second reading."""
        issues: Counter[str] = Counter()
        for row in self.trace.tables["parse_issues"].to_pylist():
            if row["file"] == file:
                issues[row["kind"]] += row["count"]
        return damage_words({"issues": issues}, MENDED)

    def _read_kinds(self) -> dict[str, str]:
        """Kinds of kernels by name, as answered: what a name means is not a matter of sums."""
        table = self.answer_or_none("kernel_top", n=0)
        return {} if table is None else dict(zip(*list_columns(table, "name", "kind"), strict=True))


def answer_of(trace: Trace, name: str, **options: Any) -> pa.Table:
    """Return the answer to a question; NotApplicable where the trace holds no such data."""
    try:
        return ask_trace(trace, name, **options).table
    except MissingTable as reason:
        needs = f"needs {describe_contents(reason.lacks)}" if reason.lacks else str(reason)
        raise NotApplicable(needs) from None


def rows_of(
    trace: Trace, name: str, keys: Iterable[str], values: Iterable[str], **options: Any
) -> Rows:
    """Return an answer by its keys; empty where the trace holds no such data."""
    try:
        return key_rows(answer_of(trace, name, **options), keys, values)
    except NotApplicable:
        return {}


def add_rows(sums: Rows, rows: Rows) -> None:
    """Add the values of rows to the sums with the same keys."""
    for key, row in rows.items():
        old = sums.setdefault(key, dict.fromkeys(row))
        for name, value in row.items():
            old[name] = value if old[name] is None else old[name] + (value or 0)


def list_columns(table: pa.Table, *names: str) -> list[list[Any]]:
    """Return columns as lists."""
    return [table[name].to_pylist() for name in names]


def sum_column(table: pa.Table, name: str) -> int:
    """Return the sum of a column of whole numbers."""
    return int(pc.sum(table[name]).as_py() or 0)


def key_rows(table: pa.Table, keys: Iterable[str], values: Iterable[str]) -> Rows:
    """Return the values of each row by its keys; where keys come again, values are added up."""
    keys = tuple(keys)
    values = tuple(values)
    summed: Rows = {}
    for row in table.select(list(dict.fromkeys((*keys, *values)))).to_pylist():
        key = tuple(row[name] for name in keys)
        summed[key] = _add_values(summed.get(key), {name: row[name] for name in values})
    return summed


def _add_values(old: Mapping[str, Any] | None, new: Fields) -> Fields:
    if old is None:
        return new
    return {
        name: value if old[name] is None else old[name] + (value or 0)
        for name, value in new.items()
    }
