"""Links, passes, idle time by cause and stalls of several small files made at once: most of a
maker's calls cost the same whatever their rows.

The tables of the files are laid one after the other so that makers need not tell the files apart:
their times do not overlap, their processes have names of their own, and ids, steps and row numbers
of one file are none of another's. What files have in common, devices, streams and names of kernels,
is told apart by a column that numbers the files. What is made of them is taken apart again, and is
for each file what its maker makes of that file alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    number_or_null,
    read_numbers,
    with_column,
)
from htk.base.columns.nesting import FILE
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.schema import ABSOLUTE_TIMES, DERIVED, INT32, INT64, STRING, index_of
from htk.quantities.derived import registry

# Each has a row for each row of a table. Their makers ask for a row's time, process, ids and step,
# and for nothing else that files may have in common.
LINKS = {
    "op_links": "cpu_ops",
    "annotation_links": "annotations",
    "kernel_links": "kernels",
    "launch_links": "launches",
    "op_passes": "cpu_ops",
    "kernel_passes": "kernels",
}
# Their makers say of which file each row is, and order rows by it. Of these columns of texts the
# dictionary holds what occurs in the order of a list (False) or of the rows (True).
_CUT: dict[str, dict[str, bool]] = {
    "idle_causes": {"cause": False},
    "stalls": {"cause": False, "name": True},
}
MADE_TOGETHER = (*LINKS, *_CUT)
# Numbers that mean something within a file only; those in one row are of one kind.
_IDS = (("correlation", "flow"), ("external_id",), ("sequence",), ("forward_thread",))
_LEAST = {"sequence": 0}  # that is a number; of the others 1
# What else makers read.
_OF_A_FILE = ("process", "thread")
_NUMBERS = {*ABSOLUTE_TIMES, "step", *(c for columns in _IDS for c in columns), "stream", "device"}
_READ = (
    *("name", "category", "api", "on_gpu", "is_start", "event", "size_bytes"),
    *("launch_by", "carry_in", "depth"),  # of links
)
_LARGEST_STEP = 1 << 31
_LARGEST = 1 << 62
Read = Callable[[str], pa.Table]  # a table of one file, as parsed or as it was made of that


def links_for(name: str) -> list[str]:
    """Return those tables made together that a table is or is made of."""
    reads = registry.find_maker(name).reads if name in registry.PER_FILE else ()
    own = [name] if name in MADE_TOGETHER else []
    return own + [link for read in reads for link in links_for(read)]


def made_together(
    files: Sequence[Read], names: Collection[str] = MADE_TOGETHER
) -> dict[str, list[pa.Table]]:
    """Return these tables, one of each file; none where numbers of the files do not fit one after
    the other. Others that they are made of are asked for."""
    laid = _Laid(files, names)
    if not laid.fits:
        return {}
    return {name: laid.apart(name) for name in names}


class _Laid:
    """Files one after the other, and what is made of them."""

    def __init__(self, files: Sequence[Read], names: Collection[str]) -> None:
        self._count = len(files)
        self._made = names
        reads = {read for name in names for read in registry.find_maker(name).reads}
        self._parts = {name: [read(name) for read in files] for name in sorted(reads - {*names})}
        self._cuts = {
            name: np.append(0, np.cumsum([part.num_rows for part in parts]))
            for name, parts in self._parts.items()
        }
        self._are_alike = all(map(_has_one_schema, self._parts.values()))
        self._columns = {
            name: _read_columns(name, pa.concat_tables(parts)) if self._are_alike else {}
            for name, parts in self._parts.items()
        }
        self._tables: dict[str, pa.Table] = {}

    @property
    def fits(self) -> bool:
        """Whether tables are alike, and all numbers can be told apart."""
        added = (self._times, self._steps, *self._ids.values())
        return self._are_alike and all(a is not None for a in added)

    @cached_property
    def _times(self) -> Ints | None:
        return self._one_after_the_other(ABSOLUTE_TIMES, _LARGEST)

    @cached_property
    def _steps(self) -> Ints | None:
        return self._one_after_the_other(("step",), _LARGEST_STEP)

    @cached_property
    def _ids(self) -> dict[str, Ints | None]:
        kinds = [(columns, self._one_after_the_other(columns, _LARGEST)) for columns in _IDS]
        return {column: added for columns, added in kinds for column in columns}

    def _one_after_the_other(self, columns: Sequence[str], largest: int) -> Ints | None:
        """Return what puts the numbers of each file behind those of the file before; None: some are
        negative, or they are too many."""
        low = np.full(self._count, largest, np.int64)
        high = np.zeros(self._count, np.int64)
        for table, held in self._columns.items():
            some = np.flatnonzero(np.diff(self._cuts[table]))
            for column in [c for c in columns if c in held] if len(some) else ():
                values, there = held[column]
                begin = self._cuts[table][some]
                least = np.minimum.reduceat(np.where(there, values, largest), begin)
                low[some] = np.minimum(low[some], least)
                most = np.maximum.reduceat(np.where(there, values, 0), begin)
                high[some] = np.maximum(high[some], most)
        if columns in _IDS:  # those that are no numbers stay as they are
            low[:] = 0
        low = np.minimum(low, high)
        if low.min() < 0 or float((high - low).astype(np.float64).sum()) >= largest / 2:
            return None
        width = high - low + 1
        return np.asarray(1 + np.cumsum(width) - width - low)

    def table(self, name: str) -> pa.Table:
        """Return a table of all files, with numbers that are apart."""
        if name not in self._tables:
            if name in self._made:
                maker = registry.find_maker(name)
                self._tables[name] = maker.function(*map(self.table, maker.reads))
            else:
                self._tables[name] = self._lay_table(name)
        return self._tables[name]

    def _lay_table(self, name: str) -> pa.Table:
        parts = self._parts[name]
        cuts = self._cuts[name]
        file = np.repeat(np.arange(self._count), np.diff(cuts))
        columns: dict[str, pa.Array | pa.ChunkedArray] = {FILE: build_numbers(file, INT64)}
        for field in parts[0].schema:
            own = [part[field.name] for part in parts] if field.name in _OF_A_FILE else []
            if own:
                columns[field.name] = _own_texts(own, apart=field.name == "process")
            elif field.name in self._columns[name]:
                declared = _declare_field(name, field)
                columns[field.name] = self._renumber_column(
                    declared, *self._columns[name][field.name], file
                )
            elif field.name in _READ:
                chunks = [chunk for part in parts for chunk in part[field.name].chunks]
                columns[field.name] = pa.chunked_array(chunks, field.type)
        return pa.table(columns)

    def _renumber_column(self, field: pa.Field, values: Ints, there: Mask, file: Ints) -> pa.Array:
        added = self._find_added(field)
        if added is not None:
            moved = values + added[file]
            least = _LEAST.get(field.name, 1) if field.name in self._ids else np.iinfo(np.int64).min
            values = np.where(values >= least, moved, values)
        return build_numbers(values, field.type, None if there.all() else there)

    def _find_added(self, field: pa.Field) -> Ints | None:
        """Return what is added to the numbers of a column, by file."""
        if field.name in ABSOLUTE_TIMES:
            return self._times
        if field.name == "step":
            return self._steps
        target = index_of(field)
        return self._cuts[target][:-1] if target else self._ids.get(field.name)

    def apart(self, name: str) -> list[pa.Table]:
        """Return what was made, of each file, numbered as its own."""
        of_all = self.table(name)
        if name in LINKS:
            cuts = self._cuts[LINKS[name]]
        else:
            cuts = np.searchsorted(read_numbers(of_all[FILE]), np.arange(self._count + 1))
            of_all = of_all.drop_columns([FILE])
        file = np.repeat(np.arange(self._count), np.diff(cuts))
        for index, field in enumerate(of_all.schema):
            column = of_all.column(index)
            added = self._find_added(_declare_field(name, field))
            if field.name == "thread_index":
                added = _find_least(read_numbers(column), cuts)
            if added is not None and len(file):
                there = mark_valid(column) if column.null_count else None
                own = build_numbers(read_numbers(column) - added[file], field.type, there)
                of_all = of_all.set_column(index, field, own)
        parts = [
            of_all.slice(first, rows) for first, rows in zip(cuts, np.diff(cuts), strict=False)
        ]
        return [_with_own_texts(part, _CUT.get(name, {})) for part in parts]


def _has_one_schema(parts: Sequence[pa.Table]) -> bool:
    return all(part.schema == parts[0].schema for part in parts)


def _declare_field(name: str, field: pa.Field) -> pa.Field:
    """Return a column of a table as the vocabulary has it: makers do not say what numbers rows."""
    return DERIVED[name].field(field.name) if name in DERIVED else field


def _read_columns(table_name: str, table: pa.Table) -> dict[str, tuple[Ints, Mask]]:
    """Return the columns of numbers that makers read, and which rows hold one."""
    fields = [_declare_field(table_name, field) for field in table.schema]
    is_made = table_name in DERIVED
    names = [f.name for f in fields if f.name in _NUMBERS or (is_made and index_of(f))]
    return {
        name: (read_numbers(table[name]).astype(np.int64), mark_valid(table[name]))
        for name in names
    }


def _with_own_texts(table: pa.Table, columns: Mapping[str, bool]) -> pa.Table:
    """Return a file's part of a table with dictionaries that hold its own texts only; `columns`
    says of which, and whether these stand in the order of the rows."""
    for name, by_row in columns.items():
        codes, dictionary = codes_of(table[name])
        if by_row:
            own = dictionary.take(number_or_null(codes, INT32)).dictionary_encode()
        else:
            own = decode_texts(codes, dictionary)
        table = with_column(table, name, own)
    return table


def _own_texts(parts: Sequence[pa.ChunkedArray], *, apart: bool) -> pa.Array:
    """Return texts with a code for each file's own, in the order of its codes. `apart`: a text of
    one file is none of another's, nor is the lack of a text."""
    codes: list[np.ndarray] = []
    names: list[str] = []
    for k, part in enumerate(parts):
        own, dictionary = codes_of(part)
        first = np.int32(len(names))
        if apart:
            names += [f"{k} ", *(f"{k} {name}" for name in dictionary.to_pylist())]
            codes.append(own + first + np.int32(1))
        else:
            names += dictionary.to_pylist()
            codes.append(np.where(own == NONE, np.int32(NONE), own + first))
    return decode_texts(np.concatenate(codes), pa.array(names, STRING), compact=False)


def _find_least(values: Ints, cuts: Ints) -> Ints:
    """Return the least number of each file; 0 of one without rows."""
    least = np.zeros(len(cuts) - 1, np.int64)
    some = np.flatnonzero(np.diff(cuts))
    if len(some):
        least[some] = np.minimum.reduceat(values, cuts[some])
    return least
