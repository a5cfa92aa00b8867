"""A trace: the files of all ranks as one set of tables, made when first asked for."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import build_booleans, read_numbers, with_column
from htk.base.columns.concatenate import concatenate_tables
from htk.base.core.humanize import format_duration, parse_pattern
from htk.base.core.recording_hints import describe_contents, describe_recording, find_recipe
from htk.base.errors import MissingTable, UsageError
from htk.base.mappings import NamedTables
from htk.base.names.server_ranges import is_server_range
from htk.base.schema import ABSOLUTE_TIMES, DERIVED, INT64, TABLES
from htk.base.spread.workplace import Workplace
from htk.quantities.derived import registry
from htk.traces.trace.confined_tables import ConfinedTables, WholeRecording, is_made_anew
from htk.traces.trace.cycles import cycles_of_repeated_steps
from htk.traces.trace.file import TraceFile
from htk.traces.trace.joined import JoinedTables, are_small
from htk.traces.trace.joining import rows_before, rows_of_all, rows_of_chosen
from htk.traces.trace.linking import of_each
from htk.traces.trace.selection import (
    EVERYTHING,
    Selection,
    in_words,
    narrow_files,
    refuse_uncut,
    steps_named,
)


class Tables(NamedTables):
    """The vocabulary's tables over all ranks of a trace: `tables["kernels"]`, `tables.kernels`."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace
        self._tables: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._tables:
            with self._trace.bounded():
                self._tables[name] = self._trace._make(name)
        return self._tables[name]

    def release(self) -> None:
        """Let go of what was made: a trace and its tables name each other, and would stay until
        Python looks for such circles."""
        self._tables.clear()

    def __getattr__(self, name: str) -> pa.Table:
        if name.startswith("_") or name not in (*TABLES, *registry.NAMES):
            raise AttributeError(f"no table {name!r}; list(trace.tables) names them")
        return self[name]

    def __dir__(self) -> list[str]:
        return [*self]

    def __repr__(self) -> str:
        filled = [f"{n} ({self[n].num_rows:,} rows)" for n in TABLES if self[n].num_rows]
        return f"<tables: {', '.join(filled)}; derived: {', '.join(registry.NAMES)}>"

    def __iter__(self) -> Iterator[str]:
        return iter([*TABLES, *registry.NAMES])

    def __len__(self) -> int:
        return len(TABLES) + len(registry.NAMES)


@dataclass(frozen=True)
class Trace:
    """The files of one run, and the part of them that is looked at."""

    files: tuple[TraceFile, ...]
    selection: Selection = EVERYTHING
    unread: tuple[str, ...] = ()  # files of the folder that no parser knows
    failed: tuple[tuple[str, str], ...] = ()  # recognised files that could not be read, and why
    unselected: "Trace | None" = field(default=None, repr=False)  # of which this is a selection
    joined: JoinedTables | None = field(default=None, repr=False, compare=False)  # of all files
    began_ns: int | None = None  # of the recording of which this is a part; None: see its files
    serves_ns: int | None = None  # since its start, where a server captures its graphs before
    work: Workplace = field(
        default_factory=Workplace, repr=False, compare=False
    )  # who answers, in what memory
    names_activities: bool = False  # what is read of the host only names GPU activities
    # Who makes tables of files from outside.
    confined: ConfinedTables | None = field(default=None, repr=False, compare=False)

    @cached_property
    def tables(self) -> Tables:
        return Tables(self)

    @cached_property
    def gpu_counts(self) -> dict[str, int]:
        """The counts of the selected GPU work that add up over ranks; every coverage needs them."""
        work = self.tables["gpu_work"]
        return {name: int(read_numbers(work[name]).sum()) for name in work.column_names[2:]}

    @property
    def everything(self) -> "Trace":
        """The trace with nothing selected: one object for all selections."""
        return self._everyone

    def bounded(self) -> AbstractContextManager[None]:
        """Hold what is made in a block to the memory of the work, if it may take more than that."""
        return nullcontext() if (joined := self._everyone.joined) is None else joined.bounded()

    @property
    def ranks(self) -> list[int]:
        """The recorded ranks, in order."""
        return sorted({p.rank for p in self.selected_files if p.rank is not None})

    @cached_property
    def origin_ns(self) -> int:
        """The start of the first event of any rank, selected or not, in ns."""
        if self.began_ns is not None:
            return self.began_ns
        starts = pc.min(self._everyone.tables["ranks"]["start_ns"]).as_py()
        if starts is None:  # NCCL's own records
            starts = pc.min(self._everyone.tables["collectives"]["start_ns"]).as_py()
        return int(starts or 0)

    def sel(
        self,
        *,
        ranks: Sequence[int] | None = None,
        steps: Sequence[int] | str | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        annotation: str | None = None,
        cycles: Sequence[int] | None = None,
        name: str | None = None,
        streams: Sequence[int] | None = None,
    ) -> Self:
        """Return the same trace, narrowed; nothing is computed until a table is asked for.

        `steps` may be a text: "3,5..7", or "first:2" for the recording's own first two. Of several
        recordings of a rank `cycles` chooses, the first is 0.
        """
        if from_ns is not None and to_ns is not None and from_ns >= to_ns:
            raise UsageError(
                f"from {format_duration(from_ns)} to {format_duration(to_ns)}: "
                "ends before it begins"
            )
        for option, text in (("annotation", annotation), ("name", name)):
            if text is not None:
                parse_pattern(text, option)
        now = self.selection.as_asked
        chosen = Selection(
            now.ranks if ranks is None else frozenset(ranks),
            now.steps if steps is None else steps_named(steps, lambda: self._known_steps),
            now.from_ns if from_ns is None else from_ns,
            now.to_ns if to_ns is None else to_ns,
            now.annotation if annotation is None else annotation,
            now.cycles if cycles is None else frozenset(cycles),
            now.name if name is None else name,
            now.streams if streams is None else frozenset(streams),
        )
        narrowed = self.under(chosen)
        if ranks is not None or cycles is not None:
            narrowed.check_files()
        return narrowed

    def under(self, selection: Selection) -> Self:
        """Return the same files under another selection; what is made of them all is made once.

        Of a server that captures its graphs first, what it serves is looked at, unless the
        selection chooses times, steps or recordings.
        """
        return self._exactly_under(selection.as_asked.serving_from(self.serves_ns))

    def _exactly_under(self, selection: Selection) -> Self:
        return replace(self, selection=selection, unselected=self._everyone)

    def need(self, name: str) -> pa.Table:
        """Return a table that must hold rows."""
        table = self.tables[name]
        if not table.num_rows:
            names = {part.file for part in self.files}
            files = PurePath(names.pop()).name if len(names) == 1 else f"{len(names)} files"
            if self.emptied(name):
                chosen = self._describe_choice() or "its serving"
                raise MissingTable(f"{files}: no {describe_contents(name)} within {chosen}")
            lacks = self._describe_lacking(name)
            text = f"{files}: no {describe_contents(lacks)} were recorded"
            raise self.with_recipe(MissingTable(text, lacks))
        return table

    def what_records(self, name: str) -> str:
        """Return what a table would hold, and how to record it."""
        return describe_recording(self._describe_lacking(name), self._formats)

    def with_recipe(self, error: MissingTable) -> MissingTable:
        """Return an error that says how to record what is lacking, or what leaves none."""
        if not error.lacks or error.recipe:
            return error
        is_table = error.lacks in TABLES or error.lacks in DERIVED  # others are columns of some
        if is_table and (chosen := self._describe_choice()) and self.emptied(error.lacks):
            return MissingTable(f"nothing within {chosen}")
        how = find_recipe(self._describe_lacking(error.lacks), self._formats)
        return MissingTable(error.args[0], error.lacks, how)

    def _describe_lacking(self, name: str) -> str:
        """Return the table to record: GPU work for step windows, where steps were recorded."""
        if name not in ("step_windows", "step_window_times"):
            return name
        if any(map(is_server_range, self.tables["server_marks"]["name"].to_pylist())):
            return "server_steps"
        return "kernels" if self.has_steps else name

    @property
    def _formats(self) -> set[str]:
        return {part.format for part in self.files}

    def lacks(self, name: str) -> bool:
        """Return whether nothing of a table was recorded, whatever is chosen."""
        return not self.tables[name].num_rows and not self.emptied(name)

    def emptied(self, name: str) -> bool:
        """Return whether it is the selection, or what wrote the files, that leaves nothing of a
        table."""
        if self.tables[name].num_rows:
            return False
        recorded = name in TABLES and any(file.recorded(name) for file in self.read_files)
        return recorded or bool(self._everyone.tables[name].num_rows)

    def check_selection(self) -> None:
        """Refuse ranks and steps that do not exist: a mistake must not give an empty answer."""
        chosen = self.selection
        self.check_files()
        if chosen.steps is not None and not chosen.steps & self._known_steps:
            raise MissingTable(f"nothing within {self._describe_choice()}")

    def check_files(self) -> None:
        """Refuse a choice of ranks and cycles none of which was recorded."""
        if self.selection.of_files != EVERYTHING and self._everyone.ranks and not self.ranks:
            raise MissingTable(f"nothing within {self._describe_choice()}")

    @property
    def of_one_cycle(self) -> Self:
        """The recording that most ranks took part in, the first if several: for tools that know one
        of each rank."""
        ranks = Counter(part.cycle for part in self.selected_files)
        if len(ranks) < 2:
            return self
        return self.sel(cycles=[max(ranks, key=lambda cycle: (ranks[cycle], -cycle))])

    @property
    def cycles(self) -> list[int]:
        """The recorded cycles, in order: several where a rank was recorded more than once."""
        return sorted({part.cycle for part in self.selected_files})

    @cached_property
    def cycles_of_steps(self) -> list[int]:
        """The cycles that the chosen steps are in, where one rank has a step in several."""
        if self.selection.steps is None or len(self.cycles) < 2:
            return []
        return cycles_of_repeated_steps(self.tables["annotations"])

    @property
    def has_steps(self) -> bool:
        """Whether steps were recorded, on the host or on a GPU."""
        return bool(self._known_steps)

    @cached_property
    def _known_steps(self) -> set[int]:
        """The steps of all ranks."""
        return {
            *self._everyone._find_kept("steps", self._everyone._steps_of_files)["step"].to_pylist()
        }

    def _steps_of_files(self) -> pa.Table:
        """Return the steps of all ranks, of joined tables where these are kept; else they are read
        file by file: joining the tables would cost more."""
        stepped = ("annotations", "kernel_links", "op_links", "job_operations")
        is_kept = self.joined is not None and self.joined.keeps_events
        readers = [self.tables.__getitem__] if is_kept else [file.table for file in self.files]
        columns = [read(n)["step"] for read in readers for n in stepped]
        steps = {s for column in columns for s in column.unique().to_pylist()} - {None}
        return pa.table({"step": pa.array(sorted(steps), INT64)})

    def _describe_choice(self) -> str:
        every = self._everyone
        return in_words(self.selection, every.ranks, every.cycles, list(self._known_steps))

    def relative(self, name: str) -> pa.Table:
        """Return a table with its times counted from the first event of the trace."""
        table = self.tables[name]
        for index, column in enumerate(table.schema):
            if column.name in ABSOLUTE_TIMES:
                relative = pc.subtract(table.column(index), self.origin_ns)
                table = table.set_column(index, column, relative)
        return table

    @property
    def selected_files(self) -> list[TraceFile]:
        """The files of the chosen ranks and cycles, each whole."""
        return [part for part in self.files if self.is_chosen(part)]

    def is_chosen(self, part: TraceFile) -> bool:
        """Return whether a file is of the chosen ranks and cycles."""
        ranks = self.selection.ranks
        cycles = self.selection.cycles
        of_rank = ranks is None or part.rank is None or part.rank in ranks
        return of_rank and (cycles is None or part.cycle in cycles)

    @cached_property
    def read_files(self) -> list[TraceFile]:
        """The chosen files, of each what the selection leaves."""
        if not self.selection.narrows:
            return self.selected_files
        if self._of_all_ranks is not self:
            every = zip(self.files, self._of_all_ranks.read_files, strict=True)
            return [part for uncut, part in every if self.is_chosen(uncut)]
        return list(narrow_files(self.files, self.selection, self.origin_ns))

    @cached_property
    def _of_all_ranks(self) -> "Trace":
        """The same part of the recordings of all ranks: what is made of them together."""
        chosen = self.selection.of_times
        if chosen == self.selection:
            return self
        return self._everyone if chosen == EVERYTHING else self._exactly_under(chosen)

    def part(self, files: Sequence[TraceFile]) -> "Trace":
        """Return some of the files alone, under the same selection; times count as before."""
        own = tuple(replace(file, keeps_small=True) for file in files)  # read again by themselves
        return Trace(own, self.selection, began_ns=self.origin_ns, confined=self.confined)

    def _make(self, name: str) -> pa.Table:
        if not self.names_activities:
            refuse_uncut(name, self.selection, self.selected_files, self._describe_choice)
        if name == "op_links" and self.selection.since_serving:
            serves = self.origin_ns + (self.selection.from_ns or 0)
            begun = read_numbers(self.tables["cpu_ops"]["start_ns"]) >= serves
            return with_column(self._joined_table(name), "selected", build_booleans(begun))
        if self.selection != EVERYTHING:
            return self._joined_table(name)
        if self._everyone is not self:
            return self._everyone.tables[name]
        return self._find_kept(name, lambda: self._joined_table(name))

    def _find_kept(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        """Return a table of all files as the cache has it, else as it is made."""
        if self.joined is None or self.joined.files is not self.files:
            return make()
        if self.confined is not None:
            return self.joined.kept(name, make)
        return self.joined.table(name, make, self.tables)

    def _joined_table(self, name: str) -> pa.Table:
        if name in registry.OVER_RANKS:
            return self._over_ranks(name)
        schema = TABLES.get(name) or DERIVED.get(name)
        if schema is None:
            raise MissingTable(f"no table {name!r}; there are {', '.join([*TABLES, *DERIVED])}")
        files = self.read_files
        anew = self.confined is not None and is_made_anew(name, files, self.selection)
        if anew or (name in registry.TOTALS and are_small(name, files)):
            return self._made_of_tables(name)
        if len(files) < 2:
            return files[0].table(name) if files else schema.empty_table()
        in_files = self._everyone.joined is not None and self._everyone.joined.exceeds_memory
        added = rows_before(schema, files)
        if not in_files and all(file.holds_whole(name) for file in files):
            of_all = rows_of_all(schema, files, of_each(files, TraceFile.own, name), added)
            if of_all is not None:
                return of_all
        return concatenate_tables(
            schema, of_each(files, TraceFile.table, name), added, by_numpy=in_files
        )

    @cached_property
    def _everyone(self) -> "Trace":
        """The unfiltered view, used for tables across ranks."""
        if self.unselected is not None:
            return self.unselected
        return self if self.selection == EVERYTHING else replace(self, selection=EVERYTHING)

    @cached_property
    def _whole(self) -> WholeRecording:
        return WholeRecording(self.files, self.joined, self.began_ns)

    def _over_ranks(self, name: str) -> pa.Table:
        """Return what is made of all ranks at once; of it the rows of those looked at."""
        every = self._of_all_ranks
        of_cycles = self.selection.cycles is not None  # one of two processes of a rank
        if every is self or (of_cycles and name in registry.BY_RANK):
            return self._made_of_tables(name)
        return rows_of_chosen(every.tables[name], every.read_files, self.is_chosen)

    def _made_of_tables(self, name: str) -> pa.Table:
        if self.confined is not None:
            return self.confined.make(self._everyone._whole, self.selection, name)
        maker = registry.find_maker(name)
        return maker.function(*(self.tables[read] for read in maker.reads))
