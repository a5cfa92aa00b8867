"""Raw event columns become tables of the vocabulary."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk import schema as vocabulary
from htk.arrow import boolean, build, codes_of, nulls, number, text, texts, without
from htk.collective_names import annotated
from htk.kinds import kind_of
from htk.parsers.kineto.collectives import OPERATOR, RECORD
from htk.parsers.kineto.raw import TYPES, RawEvents

Rows = NDArray[np.int64]
_INT64 = pa.int64()

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
    ),
    "syncs": ("cuda_sync", "xpu_sync"),
    "annotations": ("user_annotation", "gpu_user_annotation"),
    "python_calls": ("python_function", "python"),
    "overheads": ("overhead",),
}
FLOW_CATEGORIES = {"ac2g": "ac2g", "async_cpu_to_gpu": "ac2g", "fwdbwd": "fwdbwd"}
COPIES = ("gpu_memcpy", "memcpy")
SETS = ("gpu_memset", "memset")
STEP = "ProfilerStep#"
DAY_NS = 86_400_000_000_000  # a longer event is an overflowed counter (seen on ROCm), not work


@dataclass
class Columns:
    """The raw columns, for the rows that belong to one table."""

    raw: RawEvents
    rows: Rows
    base_ns: int

    def __post_init__(self) -> None:
        self.length = len(self.rows)
        self._place = np.full(self.raw.rows, -1, np.int32)
        self._place[self.rows] = np.arange(self.length, dtype=np.int32)

    def has(self, name: str) -> bool:
        return self.raw.has(name)

    def values(self, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Numbers and which of them are there."""
        if not self.has(name):
            return np.zeros(self.length, np.int64), np.zeros(self.length, bool)
        values = self.raw.values(name)
        assert isinstance(values, np.ndarray)
        return self._spread(name, values, 0)

    def number(self, name: str, kind: pa.DataType = _INT64) -> pa.Array:
        values, there = self.values(name)
        return number(values, kind, None if there.all() else there)

    def codes(self, name: str) -> tuple[NDArray[np.int32], pa.Array]:
        """Codes (-1: none) and dictionary of a text column."""
        if not self.has(name):
            return np.full(self.length, -1, np.int32), pa.array([], pa.string())
        codes, dictionary = codes_of(self.raw.values(name))
        return self._spread(name, codes, -1)[0], dictionary

    def text(self, name: str, *, compact: bool = True) -> pa.Array:
        return text(*self.codes(name), compact=compact)

    def integers_of_text(self, name: str) -> tuple[Rows, NDArray[np.bool_]]:
        """Texts that are whole numbers (a pid, a tid), as numbers."""
        codes, dictionary = self.codes(name)
        parsed = [_whole(value) for value in dictionary.to_pylist()]
        known = np.array([p is not None for p in parsed] + [False], bool)
        return np.array([p or 0 for p in parsed] + [0], np.int64)[codes], known[codes]

    def times(self) -> tuple[Rows, Rows]:
        start, _ = self.values("ts")
        length, _ = self.values("dur")
        start = start + self.base_ns if self.base_ns else start
        if self.length and (length.min() < 0 or length.max() > DAY_NS):
            length = np.where((length < 0) | (length > DAY_NS), 0, length)
        return start, start + length

    def _spread(
        self, name: str, values: NDArray[Any], fill: int
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        rows = self.raw.column_rows(name)
        if rows is None:
            return values[self.rows], np.ones(self.length, bool)
        place = self._place[rows]
        mine = place >= 0
        if not mine.all():
            place, values = place[mine], values[mine]
        if len(place) == self.length:  # every row has it, in order
            return values, np.ones(self.length, bool)
        out = np.full(self.length, fill, values.dtype)
        there = np.zeros(self.length, bool)
        out[place] = values
        there[place] = True
        return out, there


@dataclass
class Sorted:
    """Which raw rows go to which table."""

    complete: Rows
    of: dict[str, Rows]
    untimed: Rows  # complete events without a time: lost
    category: NDArray[np.int32]  # codes of every raw row
    categories: list[str]  # lower case, by code


def sort_events(raw: RawEvents) -> Sorted:
    """Tell the events apart by phase and category."""
    phase, phases = _dense_codes(raw, "ph")
    category, categories = _dense_codes(raw, "cat")
    lowered = [c.lower() for c in categories]
    is_complete = _is(phase, phases, "X")
    timed = np.ones(raw.rows, bool)
    rows = raw.column_rows("ts") if raw.has("ts") else np.empty(0, np.int64)
    if rows is not None:
        timed[:] = False
        timed[rows] = True
    complete = np.flatnonzero(is_complete & timed)
    table = _table_codes(lowered)[category]
    step = _step_ops(raw, table)
    of = {}
    for number_of_table, name in enumerate(CATEGORIES):
        wanted = (table == number_of_table) & ~step
        if name == "annotations":
            wanted |= step
        of[name] = np.flatnonzero(wanted & is_complete & timed)
    of["flows"] = np.flatnonzero(
        (_is(phase, phases, "s") | _is(phase, phases, "f") | _is(phase, phases, "t")) & timed
    )
    of["counters"] = np.flatnonzero(_is(phase, phases, "C") & timed)
    of["memory"] = np.flatnonzero(
        (_is(phase, phases, "i") | _is(phase, phases, "I")) & timed & _named(raw, _is_memory)
    )
    untimed = np.flatnonzero(is_complete & ~timed)
    return Sorted(complete, of, untimed, category, lowered)


def tables(raw: RawEvents, found: Sorted, base_ns: int) -> dict[str, pa.Table]:
    """Every table that the events of one file fill (without rank and cycle)."""
    made = {
        "events": _events(Columns(raw, found.complete, base_ns)),
        "kernels": _kernels(Columns(raw, found.of["kernels"], base_ns), found),
        "cpu_ops": _cpu_ops(Columns(raw, found.of["cpu_ops"], base_ns)),
        "launches": _launches(Columns(raw, found.of["launches"], base_ns)),
        "syncs": _syncs(Columns(raw, found.of["syncs"], base_ns)),
        "annotations": _annotations(Columns(raw, found.of["annotations"], base_ns), found),
        "python_calls": _python_calls(Columns(raw, found.of["python_calls"], base_ns)),
        "overheads": _overheads(Columns(raw, found.of["overheads"], base_ns)),
        "flows": _flows(Columns(raw, found.of["flows"], base_ns)),
        "memory": _memory(Columns(raw, found.of["memory"], base_ns)),
        "counters": _counters(Columns(raw, found.of["counters"], base_ns)),
    }
    return made


def _table(table: str, columns: Columns, /, **made: Any) -> pa.Table:
    wanted = without(vocabulary.TABLES[table], "rank", "cycle")
    made["event"] = number(columns.rows, pa.int64())
    return build(wanted, made, columns.length)


def _span(columns: Columns) -> dict[str, pa.Array]:
    start, end = columns.times()
    return {"start_ns": number(start, pa.int64()), "end_ns": number(end, pa.int64())}


def _thread(columns: Columns) -> dict[str, pa.Array]:
    return {"process": columns.text("pid"), "thread": columns.text("tid")}


def _events(columns: Columns) -> pa.Table:
    """All complete events; they hold nearly every text of the file, so none is sorted out."""
    return _table(
        "events",
        columns,
        category=columns.text("cat", compact=False),
        name=columns.text("name", compact=False),
        process=columns.text("pid", compact=False),
        thread=columns.text("tid", compact=False),
        **_span(columns),
        arguments=columns.text("args_rest"),
    )


def _kernels(columns: Columns, found: Sorted) -> pa.Table:
    activity = _activities(found)[found.category[columns.rows]]
    codes, names = columns.codes("name")
    kind, family = _kinds(codes, names, activity)
    return _table(
        "kernels",
        columns,
        **_device(columns),
        name=text(codes, names),
        activity=text(activity, pa.array(["kernel", "copy", "set"])),
        kind=kind,
        family=family,
        **_span(columns),
        correlation=columns.number("correlation"),
        external_id=_external_id(columns),
        context=columns.number("context"),
        queued_ns=columns.number("queued"),
        grid=columns.text("grid"),
        block=columns.text("block"),
        registers=columns.number("regs"),
        shared_memory_bytes=columns.number("smem"),
        blocks_per_sm=columns.number("blocks_per_sm", pa.float64()),
        warps_per_sm=columns.number("warps_per_sm", pa.float64()),
        occupancy_pct=columns.number("occupancy", pa.float64()),
        size_bytes=columns.number("bytes"),
        bandwidth_gbps=columns.number("mem_bw", pa.float64()),
        graph_id=columns.number("graph_id"),
        graph_node=columns.number("graph_node"),
        priority=columns.number("priority"),
    )


def _activities(found: Sorted) -> NDArray[np.int32]:
    """0 kernel, 1 copy, 2 set for each category code."""
    return np.array(
        [1 if c in COPIES else 2 if c in SETS else 0 for c in found.categories] + [0], np.int32
    )


def _kinds(
    codes: NDArray[np.int32], names: pa.Array, activity: NDArray[np.int32]
) -> tuple[pa.Array, pa.Array]:
    """Kind and family, found once for each distinct (name, activity)."""
    pair = codes.astype(np.int64) * 3 + activity
    distinct, which = np.unique(pair, return_inverse=True)
    kinds = []
    for value in distinct.tolist():  # a few hundred distinct names, not events
        code, act = divmod(value, 3)
        name = names[code].as_py() if code >= 0 else ""
        kinds.append(kind_of(name, ("kernel", "copy", "set")[act]))
    kind_codes, kind_names = codes_of(texts([k.kind for k in kinds]))
    family_codes, family_names = codes_of(texts([k.family for k in kinds]))
    return text(kind_codes[which], kind_names), text(family_codes[which], family_names)


def _device(columns: Columns) -> dict[str, pa.Array]:
    """Device and stream from the arguments, else from the pid and tid of the GPU row."""
    made = {}
    for name, argument, place, kind in (
        ("device", "device", "pid", pa.int32()),
        ("stream", "stream", "tid", pa.int64()),
    ):
        values, there = columns.values(argument)
        if not there.all():
            instead, known = columns.integers_of_text(place)
            values, there = np.where(there, values, instead), there | known
        there = there & (values >= 0) & (values < 0xFFFFFFFF)  # -1, also as uint32: none
        made[name] = number(np.where(there, values, 0), kind, there)
    return made


def _external_id(columns: Columns) -> pa.Array:
    values, there = columns.values("external_id")
    old, old_there = columns.values("external_id_lc")
    return number(np.where(there, values, old), pa.int64(), there | old_there)


def _cpu_ops(columns: Columns) -> pa.Table:
    return _table(
        "cpu_ops",
        columns,
        name=columns.text("name"),
        **_thread(columns),
        **_span(columns),
        external_id=_external_id(columns),
        sequence=columns.number("seq_num"),
        forward_thread=columns.number("fwd_tid"),
        record_function_id=columns.number("rf_id"),
        input_dims=columns.text("in_dims"),
        input_types=columns.text("in_type"),
        input_strides=columns.text("in_strides"),
        concrete_inputs=columns.text("concrete"),
        call_stack=columns.text("call_stack"),
        module_hierarchy=columns.text("module_hier"),
        kernel_file=columns.text("kernel_file"),
        kernel_backend=columns.text("kernel_backend"),
    )


def _launches(columns: Columns) -> pa.Table:
    return _table(
        "launches",
        columns,
        name=columns.text("name"),
        api=columns.text("cat"),
        **_thread(columns),
        **_span(columns),
        correlation=columns.number("correlation"),
        external_id=_external_id(columns),
    )


def _syncs(columns: Columns) -> pa.Table:
    return _table(
        "syncs",
        columns,
        name=columns.text("name"),
        **_device(columns),
        **_span(columns),
        correlation=columns.number("correlation"),
        wait_stream=columns.number("wait_stream"),
        wait_correlation=columns.number("wait_corr"),
        wait_event_id=columns.number("wait_event"),
    )


def _annotations(columns: Columns, found: Sorted) -> pa.Table:
    on_gpu = np.array([c == "gpu_user_annotation" for c in found.categories] + [False])
    gpu = on_gpu[found.category[columns.rows]]
    codes, names = columns.codes("name")
    steps = [_step(name) for name in names.to_pylist()] + [-1]
    step = np.array(steps, np.int64)[codes]
    place = {}
    for name, column in _device(columns).items():
        values = column.fill_null(-1).to_numpy(zero_copy_only=False)
        place[name] = number(values, column.type, gpu & (values >= 0))
    return _table(
        "annotations",
        columns,
        name=text(codes, names),
        on_gpu=boolean(gpu),
        step=number(step, pa.int32(), step >= 0),
        **place,
        **_thread(columns),
        **_span(columns),
        external_id=_external_id(columns),
    )


def _python_calls(columns: Columns) -> pa.Table:
    return _table(
        "python_calls",
        columns,
        name=columns.text("name"),
        **_thread(columns),
        **_span(columns),
        python_id=columns.number("py_id"),
        python_parent=columns.number("py_parent"),
        module_id=columns.number("py_module"),
    )


def _overheads(columns: Columns) -> pa.Table:
    return _table(
        "overheads", columns, name=columns.text("name"), **_thread(columns), **_span(columns)
    )


def _time(columns: Columns) -> pa.Array:
    return number(columns.values("ts")[0] + columns.base_ns, pa.int64())


def _flows(columns: Columns) -> pa.Table:
    codes, categories = columns.codes("cat")
    known = texts([FLOW_CATEGORIES.get(c.lower(), c) for c in categories.to_pylist()])
    known_codes, known_names = codes_of(known)
    phase, phases = columns.codes("ph")
    return _table(
        "flows",
        columns,
        category=text(np.append(known_codes, np.int32(-1))[codes], known_names),
        flow=columns.text("id"),
        is_start=boolean(_is(phase, phases.to_pylist(), "s")),
        **_thread(columns),
        time_ns=_time(columns),
    )


def _memory(columns: Columns) -> pa.Table:
    return _table(
        "memory",
        columns,
        name=columns.text("name"),
        **_thread(columns),
        time_ns=_time(columns),
        device_type=columns.number("dev_type", pa.int32()),
        device=columns.number("dev_id", pa.int32()),
        address=columns.text("addr"),
        size_bytes=columns.number("alloc_bytes"),
        allocated_bytes=columns.number("total_alloc"),
        reserved_bytes=columns.number("total_reserved"),
    )


def _counters(columns: Columns) -> pa.Table:
    """A row for each series of each counter event; their names are free, so they are JSON."""
    codes, dictionary = columns.codes("args_rest")
    decoded = [_series(value) for value in dictionary.to_pylist()] + [{}]
    rows, series, values = [], [], []
    for row, code in enumerate(codes.tolist()):  # a counter may have any number of series
        for name, value in decoded[code].items():
            rows.append(row)
            series.append(name)
            values.append(value)
    take = np.array(rows, np.int64)
    per_series = Columns(columns.raw, columns.rows, columns.base_ns)
    wanted = without(vocabulary.COUNTERS, "rank", "cycle")
    whole = {
        "event": number(columns.rows, pa.int64()),
        "name": per_series.text("name"),
        "process": per_series.text("pid"),
        "time_ns": _time(per_series),
    }
    made = {name: column.take(pa.array(take)) for name, column in whole.items()}
    made["series"] = texts(series)
    made["value"] = number(np.array(values, np.float64), pa.float64())
    return build(wanted, made, len(rows))


def _series(arguments: str) -> dict[str, float]:
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: float(v) for k, v in found.items() if isinstance(v, int | float)}


def _dense_codes(raw: RawEvents, name: str) -> tuple[NDArray[np.int32], list[str]]:
    """Codes of every raw row (-1: none) and the texts."""
    if not raw.has(name):
        return np.full(raw.rows, -1, np.int32), []
    codes, dictionary = codes_of(raw.values(name))
    rows = raw.column_rows(name)
    if rows is None:
        return codes, dictionary.to_pylist()
    out = np.full(raw.rows, -1, np.int32)
    out[rows] = codes
    return out, dictionary.to_pylist()


def _is(codes: NDArray[np.int32], values: list[str], wanted: str) -> NDArray[np.bool_]:
    return np.asarray(codes == (values.index(wanted) if wanted in values else -2))


def _table_codes(categories: list[str]) -> NDArray[np.int8]:
    """Number of the table that each category code belongs to (-1: none)."""
    found = {c: k for k, names in enumerate(CATEGORIES.values()) for c in names}
    return np.array([found.get(c, -1) for c in categories] + [-1], np.int8)


def _step_ops(raw: RawEvents, table: NDArray[np.int8]) -> NDArray[np.bool_]:
    """ProfilerStep ranges that an old profiler filed under operators."""
    ops = list(CATEGORIES).index("cpu_ops")
    return np.asarray(_named(raw, lambda name: name.startswith(STEP)) & (table == ops))


def _named(raw: RawEvents, wanted: Any) -> NDArray[np.bool_]:
    codes, names = _dense_codes(raw, "name")
    return np.asarray(np.array([wanted(name) for name in names] + [False], bool)[codes])


def _is_memory(name: str) -> bool:
    return name in ("[memory]", "[OutOfMemory]")


def _step(name: str) -> int:
    number_of_step = name.removeprefix(STEP)
    return int(number_of_step) if name.startswith(STEP) and number_of_step.isdigit() else -1


def _whole(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


_COLLECTIVE = (
    "coll",
    "in_nelems",
    "out_nelems",
    "in_size_old",
    "out_size_old",
    "in_split",
    "out_split",
    "dtype",
    "group_size",
    "pg_name",
    "pg_id_old",
    "pg_desc",
    "pg_ranks",
    "seq",
    "comms_id",
    "src_rank",
    "dst_rank",
    "rank",
    "rank_start",
    "rank_stride",
    "is_async",
)
_SHAPES = ("in_dims", "in_type", "concrete")


_SHAPES = ("in_dims", "in_type", "concrete")


def metadata(raw: RawEvents, found: Sorted) -> pa.Table:
    """The collective arguments of every event that carries any, and the shapes of c10d's calls."""
    carries = _named(raw, _is_call)
    for name in _COLLECTIVE:
        if name != "dtype" and raw.has(name):
            rows = raw.column_rows(name)
            carries[rows if rows is not None else slice(None)] = True
    chosen = found.complete[carries[found.complete]] if carries.any() else np.empty(0, np.int64)
    names = (*_COLLECTIVE, *_SHAPES)
    if not len(chosen):
        none = {name: nulls(TYPES[name], 0) for name in names}
        return pa.table({"event": nulls(pa.int64(), 0), **none})
    columns = Columns(raw, chosen, 0)
    made = {"event": number(chosen, pa.int64())}
    for name in names:
        is_number = TYPES[name] == pa.int64()
        made[name] = columns.number(name) if is_number else columns.text(name)
    return pa.table(made)


def _is_call(name: str) -> bool:
    """A call whose shapes may tell what a collective carries."""
    if "(" in name or " " in name:  # Python frames and kernels, the most of all names
        return False
    return name == RECORD or OPERATOR.match(name) is not None or annotated(name) is not None
