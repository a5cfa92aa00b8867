"""One file of a trace: whose it is, and its tables as the vocabulary has them."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import build_numbers, constant_text
from htk.base.core.parser import Source
from htk.base.io.entry import Entry
from htk.base.schema import ABSOLUTE_TIMES, DERIVED, INT32, TABLES, TEXT
from htk.quantities.derived import registry
from htk.quantities.derived.cut_header import RECORDED
from htk.traces.trace.execution import FILLED, filled_collectives, filled_operators
from htk.traces.trace.kernel_stacks import FORMAT, filled_kernels

_SMALL_BYTES = 64 << 10  # a smaller table costs less to make than a file of its own
_FEW_BYTES = 1 << 20  # of kernels, whose extent is found at once
_NAMING_FILES = {name for name, schema in TABLES.items() if "file" in schema.names}
_SAME_RANK = {
    "copy_of_a_file": "the same recording as {}; left out",
    "older_recording": "an older recording of the rank of {}; left out",
    "same_rank": "recorded the same time as {}, which says the same rank: two processes, both kept",
}


@dataclass(frozen=True)
class FileRecording:
    """One process of a file as it was read, before its rank and cycle are known."""

    source: Source
    parser: str
    entry: Entry
    process: int = 0  # which of the file's


def process_of(entry: Entry, position: int) -> int:
    """Return which of its file's processes an entry is; the cycles of one share its number."""
    return int(str(entry.parsed.facts.get("process", position)))


def steps_of(entry: Entry) -> list[int]:
    """Return the step numbers that a recording holds."""
    table = entry.tables.get("annotations")
    return [] if table is None else [s for s in table["step"].unique().to_pylist() if s is not None]


@dataclass(frozen=True)
class TraceFile:
    """One file: whose it is, and its tables."""

    entry: Entry
    file: str
    rank: int | None
    cycle: int
    rank_from: str = ""
    first_event: int = 0  # added to `event`: cycles of one rank continue the count
    format: str = ""
    file_bytes: int | None = None
    same_rank_files: tuple[tuple[str, str], ...] = ()  # what they are to this one, and their names
    shift_ns: int = 0  # added to all times: the file lost what its times are relative to
    placed_by: str | None = None  # what told the shift; "nothing": its times stay relative
    execution: Entry | None = None  # an execution trace of the same rank
    stacks: tuple[Entry, ...] = ()  # where its kernels stem from, of files beside it
    keeps_small: bool = True  # by itself, a table made of it; not where all files' are kept joined

    def table(self, name: str) -> pa.Table:
        """A table of the vocabulary with its rank and cycle; empty where the file has none."""
        if name == "ranks":
            return self._build_rank_row()
        if self._is_filled(name):
            return self._fill_table(name)
        if name == "parse_issues" and (self.same_rank_files or self.placed_by):
            return pa.concat_tables([self._complete_table(name), self._issues_of_opening()])
        return self._complete_table(name)

    def holds_whole(self, name: str) -> bool:
        """Return whether a table's rows are as `own` has them, but for whose they are."""
        return not (
            name in _NAMING_FILES or self.first_event or self.shift_ns or self._is_filled(name)
        )

    def _is_filled(self, name: str) -> bool:
        """Return whether other files say more of a table's rows."""
        return bool((self.execution and name in FILLED) or (self.stacks and name == "kernels"))

    def recorded(self, name: str) -> bool:
        """Return whether rows of a parsed table were recorded, be it outside of what a cut left."""
        names = self.entry.parsed.facts.get(RECORDED)
        return bool(self.entry.rows(name)) or (isinstance(names, list) and name in names)

    def own(self, name: str) -> pa.Table | None:
        """A table as the file has it; None: it has none."""
        return self.entry.tables.get(name) if name in TABLES else self._find_derived(name)

    def _fill_table(self, name: str) -> pa.Table:
        if name == "kernels":
            kernels = self._complete_table(name)
            for entry in self.stacks:
                kernels = filled_kernels(kernels, entry.tables[FORMAT])
            return kernels
        assert self.execution is not None
        nodes = (
            _build_empty("execution_nodes")
            if (own := self.execution.tables.get("execution_nodes")) is None
            else own
        )
        groups = (
            _build_empty("comm_groups")
            if (own := self.execution.tables.get("comm_groups")) is None
            else own
        )
        ops = self._complete_table("cpu_ops")
        if name == "cpu_ops":
            return filled_operators(ops, nodes)
        return filled_collectives(self._complete_table(name), ops, nodes, groups)

    def _complete_table(self, name: str) -> pa.Table:
        schema = TABLES[name] if name in TABLES else DERIVED[name]
        own = self.own(name)
        if own is None or not own.num_rows:
            return _build_empty(name)
        by_name = dict(zip(own.column_names, own.columns, strict=True))
        columns = [self._complete_column(by_name.get(f.name), f, own.num_rows) for f in schema]
        return pa.table(columns, schema=schema)

    def _build_rank_row(self) -> pa.Table:
        """Return the file's row of `ranks`."""
        schema = TABLES["ranks"]
        facts = self.entry.parsed.facts
        row = {name: facts.get(name) for name in schema.names} | {
            "rank": self.rank,
            "cycle": self.cycle,
            "rank_from": self.rank_from,
            "file": self.file,
            "format": self.format,
            "file_bytes": self.file_bytes,
        }
        for name in ("start_ns", "end_ns"):
            if self.shift_ns and row.get(name) is not None:
                row[name] = int(str(row[name])) + self.shift_ns
        return pa.Table.from_pylist([row], schema=schema)

    def _issues_of_opening(self) -> pa.Table:
        rows: list[dict[str, object]] = [
            {
                "rank": self.rank,
                "cycle": self.cycle,
                "file": other if kind != "same_rank" else self.file,
                "kind": kind,
                "text": _SAME_RANK[kind].format(self.file if kind != "same_rank" else other),
                "count": 1,
            }
            for kind, other in self.same_rank_files
        ]
        if self.placed_by is not None:
            if self.shift_ns:
                text = (
                    f"the file lost its base time; placed by the {self.placed_by} of another rank"
                )
            else:
                text = "the file lost its base time; its times cannot be compared with other ranks"
            rows.append(
                {
                    "rank": self.rank,
                    "cycle": self.cycle,
                    "file": self.file,
                    "kind": "no_base_time",
                    "text": text,
                    "count": 1,
                }
            )
        return pa.Table.from_pylist(rows, schema=TABLES["parse_issues"])

    def _find_derived(self, name: str) -> pa.Table:
        if name in registry.VIEWS or (
            name in registry.EXTENTS and self.entry.size_bytes("kernels") < _FEW_BYTES
        ):
            return self._make_derived(name)
        smallest_bytes = 0 if self.keeps_small else _SMALL_BYTES
        return self.entry.derived(
            name,
            lambda: self._make_derived(name),
            smallest_bytes=smallest_bytes,
        )

    def _make_derived(self, name: str) -> pa.Table:
        maker = registry.find_maker(name)
        return maker.function(*(self.own_or_empty(read) for read in maker.reads))

    def own_or_empty(self, name: str) -> pa.Table:
        """A table as the file has it, without rank and cycle; empty where it has none."""
        return self.parsed_table(name) if name in TABLES else self._find_derived(name)

    def parsed_table(self, name: str) -> pa.Table:
        """A table as it was parsed; empty where the file has none."""
        own = self.entry.tables.get(name)
        return _build_empty(name) if own is None else own

    def _complete_column(
        self, own: pa.ChunkedArray | None, field: pa.Field, length: int
    ) -> pa.ChunkedArray | pa.Array:
        """Return a column as the file has it, or what is known without it."""
        if own is not None and field.name != "cycle":
            if field.name in ("event", "op_event") and self.first_event:
                return pc.add(own, self.first_event)
            if field.name in ABSOLUTE_TIMES and self.shift_ns:
                return pc.add(own, self.shift_ns)
            return own
        if field.name == "rank":
            valid = None if self.rank is not None else np.zeros(length, bool)
            return build_numbers(np.full(length, self.rank or 0), INT32, valid)
        if field.name == "cycle":
            return build_numbers(np.full(length, self.cycle), INT32)
        if field.name == "file":
            return constant_text(self.file, length)
        if field.type == TEXT:
            return constant_text(None, length)
        return pa.nulls(length, field.type)


def make_tables(entry: Entry, file: str) -> None:
    """Make all tables that are made of a file's own, which the entry keeps."""
    made_of = TraceFile(entry, file, 0, 0)
    for name in registry.PER_FILE:
        made_of.table(name)


@cache
def _build_empty(name: str) -> pa.Table:
    """Return a table of the vocabulary without rows: most files lack most tables."""
    return (TABLES.get(name) or DERIVED[name]).empty_table()
