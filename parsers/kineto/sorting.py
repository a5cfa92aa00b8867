"""Which raw events go to which table, and their columns."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_numbers, codes_of, constant_text, decode_texts, mark_valid
from htk.base.columns.order import order_by
from htk.base.columns.types import Mask
from htk.base.schema import FLOAT64, INT32, INT64, STRING
from htk.base.schema.profile import ALLOCATION, FAILED_ALLOCATION
from htk.parsers.kineto.raw import TYPES, RawEvents

Rows = NDArray[np.int64]
_FORMATS = {INT64: "l", INT32: "i", FLOAT64: "g"}

# Categories of all ages and vendors (Kineto's ActivityType; the capitals are of 2021).
GPU = ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "collective_comm")
CATEGORIES = {
    "kernels": (*GPU, "memcpy", "memset"),
    "cpu_ops": ("cpu_op", "operator"),
    "launches": (
        "cuda_runtime",
        "cuda_driver",
        "runtime",
        "hip_runtime",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "glow_runtime",
        "hpu_op",
        "privateuse1_runtime",
        "privateuse1_driver",
        "os_runtime",  # as htk writes what Nsight recorded of it
    ),
    "syncs": ("cuda_sync", "xpu_sync"),
    "annotations": ("user_annotation", "gpu_user_annotation"),
    "python_calls": ("python_function", "python"),
    "overheads": ("overhead",),
    "graph_nodes": ("graph_event_node", "graph_host_node"),  # that are no work of the GPU
}
PROFILER_RANGE = "cuda_profiler_range"  # CUPTI's metrics of a kernel, or of a range of them
_PHASES = ("X", "M", "s", "f", "t", "C", "i", "I")
_ENDS = ("E", "e", "F")  # of what has a begin
_NO_WORK = ("trace", PROFILER_RANGE, "cuda_event")  # the profiler's own, and marks
MTIA_SYNCS = ("event_wait", "event_record")  # MTIA's, among what runs on the device
_ONECCL = "xccl::"  # its calls on the host, which Kineto files with what runs on the device
STEP = "ProfilerStep#"
FARTHEST_NS = 1 << 61  # from 1970, 73 years; sums and differences of such times fit an int64
_MANY = 20  # times as many events: beside them, what lies a day apart is damage
DAY_NS = 86_400_000_000_000  # a longer event is an overflowed counter (seen on ROCm), not work


@dataclass(frozen=True)
class Sorted:
    """Which raw rows go to which table."""

    complete: Rows
    of: dict[str, Rows]
    untimed: Rows  # complete events without a time: lost
    strays: Rows  # events more than a day from the others, or beyond what is read: lost


def sort_events(raw: RawEvents, base_ns: int = 0) -> Sorted:
    """Return the rows of each table, by phase and category; `base_ns` is added to all times."""
    phase = _dense_codes(raw, "ph")
    timed = np.ones(raw.rows, bool)
    rows = raw.column_rows("ts") if raw.has("ts") else np.empty(0, np.int64)
    if rows is not None:
        timed[:] = False
        timed[rows] = True
    dated = timed & ~_is_phase(raw, phase, "M")  # metadata is of no time, whatever it says
    strays = _find_strays(raw, np.flatnonzero(dated), base_ns)
    untimed = ~timed
    timed[strays] = False
    is_complete = _is_phase(raw, phase, "X")
    complete = is_complete & timed
    table = _table_codes(raw)
    table[~complete] = -1
    of = {name: np.flatnonzero(table == k) for k, name in enumerate(CATEGORIES)}
    of["flows"] = np.flatnonzero(_is_phase(raw, phase, "s", "f", "t") & timed)
    is_counted = is_complete & _is_of_category(raw, PROFILER_RANGE)
    of["counters"] = np.flatnonzero((_is_phase(raw, phase, "C") | is_counted) & timed)
    of["memory"] = np.flatnonzero(
        _is_phase(raw, phase, "i", "I") & timed & mark_named(raw, _is_memory)
    )
    return Sorted(np.flatnonzero(complete), of, np.flatnonzero(is_complete & untimed), strays)


def _find_strays(raw: RawEvents, rows: Rows, base_ns: int) -> Rows:
    """Return rows whose time cannot be: beyond ±2^61 ns, or a few rows a day from all others.

    Two recordings in one file, hours or days apart, both hold many events and are no strays.
    """
    times, _ = Columns(raw, rows, 0).values("ts")
    if not len(times) or (
        times.max() - times.min() <= DAY_NS and abs(int(times[0]) + base_ns) < FARTHEST_NS - DAY_NS
    ):
        return rows[:0]
    damaged = (times > FARTHEST_NS - base_ns) | (times < -FARTHEST_NS - base_ns)
    order = order_by(times)
    # Neighbours' distance as an unsigned number: it may exceed what an int64 holds.
    apart = times[order][1:].astype(np.uint64) - times[order][:-1].astype(np.uint64)
    cluster = np.append(0, np.cumsum(apart > np.uint64(DAY_NS)))
    size = np.bincount(cluster, times[order] != 0)  # times of zero were never written
    lonely = (size * _MANY <= size.max()) | ((size == 1) & (size.max() > 1))
    last = np.flatnonzero(np.diff(cluster, append=cluster[-1] + 1))
    is_negative = times[order][last] < 0  # before the clock began to count that told the others
    damaged[order] |= (lonely | (is_negative & ~is_negative[-1]))[cluster]
    return rows[damaged]


def unread_events(raw: RawEvents, events: Sorted) -> Rows:
    """Return the complete events that are in no table."""
    is_unread = np.zeros(raw.rows, bool)
    is_unread[events.complete] = True
    for rows in events.of.values():
        is_unread[rows] = False
    unread = np.flatnonzero(is_unread)
    return unread[~is_any(*Columns(raw, unread, 0).codes("cat"), _NO_WORK)]


def unread_phases(raw: RawEvents) -> Rows:
    """Return the events of phases that are not read: begins apart from their ends, for one."""
    phase = _dense_codes(raw, "ph")
    rows: Rows = np.flatnonzero((phase >= 0) & ~_is_phase(raw, phase, *_PHASES, *_ENDS))
    return rows


def mark_named(raw: RawEvents, wanted: Callable[[str], bool]) -> Mask:
    """Return which raw rows have a name that is wanted; asked once for each distinct name."""
    answers = [wanted(name) for name in raw.texts("name")]
    return np.asarray(np.array([*answers, False], bool)[_dense_codes(raw, "name")])


@dataclass
class Columns:
    """The raw columns, for the rows that belong to one table; these ascend."""

    raw: RawEvents
    rows: Rows
    base_ns: int

    def __post_init__(self) -> None:
        self.length = len(self.rows)

    def has(self, name: str) -> bool:
        return self.raw.has(name)

    def values(self, name: str) -> tuple[NDArray[Any], Mask]:
        """Return the numbers and which of them are there."""
        if not self.has(name):
            return np.zeros(self.length, np.int64), np.zeros(self.length, bool)
        if self.raw.select is not None:
            is_float = TYPES[name] == FLOAT64
            column = self.raw.select(name, self.rows, "g" if is_float else "l")
            dtype = np.float64 if is_float else np.int64
            return np.frombuffer(column.buffers()[1], dtype, self.length), mark_valid(column)
        values = self.raw.values(name)
        assert isinstance(values, np.ndarray)
        return self._spread(name, values, 0)

    def number(self, name: str, kind: pa.DataType = INT64) -> pa.Array:
        if not self.has(name):
            return pa.nulls(self.length, kind)
        if self.raw.select is not None:
            return self.raw.select(name, self.rows, _FORMATS[kind])
        values, there = self.values(name)
        return build_numbers(values, kind, None if there.all() else there)

    def codes(self, name: str) -> tuple[NDArray[np.int32], pa.Array]:
        """Return the codes (-1: none) and dictionary of a text column."""
        if not self.has(name):
            return np.full(self.length, -1, np.int32), pa.array([], STRING)
        codes, dictionary = codes_of(self.raw.values(name))
        if self.raw.select is not None:
            return self.raw.select(name, self.rows, "c").to_numpy(), dictionary
        return self._spread(name, codes, -1)[0], dictionary

    def text(self, name: str, *, compact: bool = True) -> pa.Array:
        if not self.has(name):
            return self._no_text
        if compact and self.raw.select is not None:
            return self.raw.select(name, self.rows, "u")
        return decode_texts(*self.codes(name), compact=compact)

    def integers_of_text(self, name: str) -> tuple[Rows, Mask]:
        """Return the texts that are whole numbers (a pid, a tid), as numbers."""
        codes, dictionary = self.codes(name)
        parsed = [_parse_integer(value) for value in dictionary.to_pylist()]
        is_integer = np.array([p is not None for p in parsed] + [False], bool)
        return np.array([p or 0 for p in parsed] + [0], np.int64)[codes], is_integer[codes]

    def times(self) -> tuple[Rows, Rows]:
        start, _ = self.values("ts")
        length, _ = self.values("dur")
        start = start + self.base_ns if self.base_ns else start
        if self.length and (length.min() < 0 or length.max() > DAY_NS):
            length = np.where((length < 0) | (length > DAY_NS), 0, length)
        return start, start + length

    @cached_property
    def _no_text(self) -> pa.Array:
        """Return a column of texts that no event has: most files lack a third of them."""
        return constant_text(None, self.length)

    @cached_property
    def _position(self) -> NDArray[np.int32]:
        """Return where each raw row stands among the rows (-1: nowhere)."""
        position = np.full(self.raw.rows, -1, np.int32)
        position[self.rows] = np.arange(self.length, dtype=np.int32)
        return position

    def _spread(self, name: str, values: NDArray[Any], fill: int) -> tuple[NDArray[Any], Mask]:
        rows = self.raw.column_rows(name)
        if rows is None:
            return values[self.rows], np.ones(self.length, bool)
        position = self._position[rows]
        is_chosen = position >= 0
        if not is_chosen.all():
            position = position[is_chosen]
            values = values[is_chosen]
        if len(position) == self.length:  # every row has it, in order
            return values, np.ones(self.length, bool)
        out = np.full(self.length, fill, values.dtype)
        there = np.zeros(self.length, bool)
        out[position] = values
        there[position] = True
        return out, there


def _dense_codes(raw: RawEvents, name: str) -> NDArray[np.int32]:
    """Return the text of every raw row, as a code into the texts of that column (-1: none)."""
    if not raw.has(name):
        return np.full(raw.rows, -1, np.int32)
    codes, _ = codes_of(raw.values(name))
    rows = raw.column_rows(name)
    if rows is None:
        return codes
    out = np.full(raw.rows, -1, np.int32)
    out[rows] = codes
    return out


def _is_phase(raw: RawEvents, phase: NDArray[np.int32], *wanted: str) -> Mask:
    return np.asarray(np.array([*(p in wanted for p in raw.texts("ph")), False], bool)[phase])


def _is_of_category(raw: RawEvents, category: str) -> Mask:
    wanted = np.array([*(text == category for text in raw.texts("cat")), False], bool)
    return np.asarray(wanted[_dense_codes(raw, "cat")])


def _table_codes(raw: RawEvents) -> NDArray[np.int8]:
    """Number of the table that each raw row belongs to by its category (-1: none).

    ProfilerStep ranges that an old profiler filed under operators are annotations; what MTIA files
    under work and is only waiting for an event, or recording one, is a synchronisation; what XPUs
    file under collectives and the host called is a call.
    """
    number_of = {c: k for k, names in enumerate(CATEGORIES.values()) for c in names}
    of_category = [number_of.get(c.lower(), -1) for c in raw.texts("cat")]
    table = np.array([*of_category, -1], np.int8)[_dense_codes(raw, "cat")]
    tables = list(CATEGORIES)
    steps = mark_named(raw, lambda name: name.startswith(STEP)) & (table == tables.index("cpu_ops"))
    table[steps] = tables.index("annotations")
    for category, is_named, meant in (
        ("mtia_ccp_events", MTIA_SYNCS.__contains__, "syncs"),
        ("collective_comm", lambda name: name.startswith(_ONECCL), "launches"),
    ):
        if any(c.lower() == category for c in raw.texts("cat")):
            misfiled = mark_named(raw, is_named) & (table == tables.index("kernels"))
            table[misfiled] = tables.index(meant)
    return table


def is_any(codes: NDArray[np.int32], texts: pa.Array, wanted: tuple[str, ...]) -> Mask:
    """Return which rows of a column of texts have one that is wanted, in small letters."""
    is_wanted = [text.lower() in wanted for text in texts.to_pylist()]
    return np.asarray(np.array([*is_wanted, False], bool)[codes])


def _is_memory(name: str) -> bool:
    return name in (ALLOCATION, FAILED_ALLOCATION)


def _parse_integer(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
