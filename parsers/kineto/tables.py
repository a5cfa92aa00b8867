"""Raw event columns become tables of the vocabulary."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base import schema as vocabulary
from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    build_texts,
    codes_of,
    decode_texts,
    drop_fields,
    map_texts,
    match_texts,
    number_or_null,
    with_column,
)
from htk.base.columns.types import Mask, take_or
from htk.base.core.stated_counts import INDEX
from htk.base.names.counters import RANGE_PROFILER
from htk.base.schema import FLOAT64, INT32, INT64
from htk.parsers.common.span_tables import kinds_of
from htk.parsers.common.stack_texts import join_stacks
from htk.parsers.kineto.graph_nodes import waits_of_nodes
from htk.parsers.kineto.raw import RawEvents
from htk.parsers.kineto.sorting import PROFILER_RANGE, STEP, Columns, Sorted

LAUNCH_FLOWS = ("ac2g", "async_cpu_to_gpu")  # from a call to what it launched
_FLOW_CATEGORIES = {**dict.fromkeys(LAUNCH_FLOWS, "ac2g"), "fwdbwd": "fwdbwd"}
_COPIES = ("gpu_memcpy", "memcpy")
_SETS = ("gpu_memset", "memset")


def build_tables(
    raw: RawEvents, events: Sorted, base_ns: int, keep: Callable[[pa.Table], pa.Table]
) -> dict[str, pa.Table]:
    """Return every table that the events of one file fill (without rank and cycle).

    `keep` is given each one before the next is made, and may return it from somewhere else.
    """
    filled = {}
    for name, maker in _MAKERS.items():
        rows = events.complete if name == "events" else events.of[name]
        if not len(rows):
            filled[name] = _build_empty(name)
            continue
        columns = Columns(raw, rows, base_ns)
        table = maker(columns)
        if name == "kernels":
            others = Columns(raw, events.of["graph_nodes"], base_ns)
            flows = Columns(raw, events.of["flows"], base_ns)
            waits = waits_of_nodes(columns, others, flows)
            table = with_column(table, "waits_for_nodes", waits)
        filled[name] = keep(table)
    return filled


@cache
def _find_schema(table: str) -> pa.Schema:
    return drop_fields(vocabulary.TABLES[table], "rank", "cycle")


@cache
def _build_empty(table: str) -> pa.Table:
    return _find_schema(table).empty_table()


def _build_table(table: str, columns: Columns, /, **values: Any) -> pa.Table:
    values["event"] = build_numbers(columns.rows, INT64)
    return build_table(_find_schema(table), values, columns.length)


def _build_span(columns: Columns) -> dict[str, pa.Array]:
    start, end = columns.times()
    return {"start_ns": build_numbers(start, INT64), "end_ns": build_numbers(end, INT64)}


def _build_thread(columns: Columns) -> dict[str, pa.Array]:
    return {"process": columns.text("pid"), "thread": columns.text("tid")}


def _build_events(columns: Columns) -> pa.Table:
    """All complete events; they hold nearly every text of the file, so none is sorted out."""
    return _build_table(
        "events",
        columns,
        category=columns.text("cat", compact=False),
        name=columns.text("name", compact=False),
        process=columns.text("pid", compact=False),
        thread=columns.text("tid", compact=False),
        **_build_span(columns),
        arguments=columns.text("args_rest"),
    )


def _build_kernels(columns: Columns) -> pa.Table:
    activity = _find_activities(columns)
    codes, names = _names_with_directions(columns)
    return _build_table(
        "kernels",
        columns,
        **_build_device(columns),
        name=decode_texts(codes, names),
        activity=decode_texts(activity, pa.array(["kernel", "copy", "set"])),
        **kinds_of(codes, names, activity),
        **_build_span(columns),
        correlation=columns.number("correlation"),
        external_id=_external_id(columns),
        context=columns.number("context"),
        queued_ns=columns.number("queued"),
        grid=columns.text("grid"),
        block=columns.text("block"),
        registers=columns.number("regs"),
        shared_memory_bytes=columns.number("smem"),
        blocks_per_sm=columns.number("blocks_per_sm", FLOAT64),
        warps_per_sm=columns.number("warps_per_sm", FLOAT64),
        occupancy_pct=columns.number("occupancy", FLOAT64),
        size_bytes=columns.number("bytes"),
        bandwidth_gbps=columns.number("mem_bw", FLOAT64),
        graph_id=columns.number("graph_id"),
        graph_node=columns.number("graph_node"),
        priority=columns.number("priority"),
        graph_annotation=columns.text("meta_name"),
        call_stack=map_texts(columns.text("kernel_stack"), join_stacks),
    )


_BARE_COPY = "Memcpy"
_OF_HOST = ("Pageable", "Pinned")


def _names_with_directions(columns: Columns) -> tuple[NDArray[np.int32], pa.Array]:
    """Return the codes of names, and the names; of copies that are called nothing but that, with
    the direction and the kinds of memory that some profilers write beside the name."""
    codes, names = columns.codes("name")
    ways, directions = columns.codes("copy_way")
    if not len(directions):
        return codes, names
    texts = names.to_pylist()
    bare = np.array([*(name == _BARE_COPY for name in texts), False])[codes] & (ways >= 0)
    spaces = [columns.codes(end) for end in ("copy_source", "copy_target")]
    ends = np.stack([ways, *(code for code, _ in spaces)], 1)[bare]
    kinds, kind = np.unique(ends, axis=0, return_inverse=True)
    words = [directions.to_pylist(), *([*memory.to_pylist(), ""] for _, memory in spaces)]
    directed = [_copy_name(*map(list.__getitem__, words, row)) for row in kinds.tolist()]
    named = codes.copy()
    named[bare] = len(texts) + kind.ravel()
    return named, pa.array(texts + directed)


def _copy_name(direction: str, source: str, target: str) -> str:
    """Return Kineto's name of a copy, without kinds of memory that its direction rules out."""
    of_host = (source.title() in _OF_HOST, target.title() in _OF_HOST)
    if not source or not target or of_host != (direction[:1] == "H", direction[-1:] == "H"):
        return f"{_BARE_COPY} {direction}"
    return f"{_BARE_COPY} {direction} ({source.title()} -> {target.title()})"


def _find_activities(columns: Columns) -> NDArray[np.int32]:
    """0 kernel, 1 copy, 2 set, by category."""
    codes, categories = columns.codes("cat")
    lowered = [c.lower() for c in categories.to_pylist()]
    kinds = [1 if c in _COPIES else 2 if c in _SETS else 0 for c in lowered]
    return np.array([*kinds, 0], np.int32)[codes]


def _build_device(columns: Columns) -> dict[str, pa.Array]:
    """Device and stream from the arguments, else from the pid and tid of the GPU row."""
    filled = {}
    for name, argument, fallback, kind in (
        ("device", "device", "pid", INT32),
        ("stream", "stream", "tid", INT64),
    ):
        values, there = columns.values(argument)
        for other in ("sycl_queue", "own_stream") if name == "stream" else ():
            own, is_other = columns.values(other)
            values = np.where(is_other, own, values)
            there = there | is_other
        if not there.all():
            instead, is_integer = columns.integers_of_text(fallback)
            values = np.where(there, values, instead)
            there = there | is_integer
        there = there & (values >= 0) & (values < 0xFFFFFFFF)  # -1, also as uint32: none
        filled[name] = build_numbers(np.where(there, values, 0), kind, there)
    return filled


def _external_id(columns: Columns) -> pa.Array:
    values, there = columns.values("external_id")
    old, old_there = columns.values("external_id_lc")
    return build_numbers(np.where(there, values, old), INT64, there | old_there)


def _cpu_ops(columns: Columns) -> pa.Table:
    return _build_table(
        "cpu_ops",
        columns,
        name=columns.text("name"),
        **_build_thread(columns),
        **_build_span(columns),
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


def _build_launches(columns: Columns) -> pa.Table:
    return _build_table(
        "launches",
        columns,
        name=columns.text("name"),
        api=columns.text("cat"),
        **_build_thread(columns),
        **_build_span(columns),
        correlation=columns.number("correlation"),
        external_id=_external_id(columns),
    )


def _build_syncs(columns: Columns) -> pa.Table:
    return _build_table(
        "syncs",
        columns,
        name=columns.text("name"),
        **_build_device(columns),
        **_build_span(columns),
        correlation=columns.number("correlation"),
        wait_stream=columns.number("wait_stream"),
        wait_correlation=columns.number("wait_corr"),
        wait_event_id=columns.number("wait_event"),
    )


def _build_annotations(columns: Columns) -> pa.Table:
    gpu = match_texts(columns.text("cat"), lambda c: c.lower() == "gpu_user_annotation")
    name = columns.text("name")
    codes, names = codes_of(name)
    step = np.array([*map(step_number, names.to_pylist()), -1], np.int64)[codes]
    location = {}
    for key, column in _build_device(columns).items():
        values = column.fill_null(-1).to_numpy(zero_copy_only=False)
        location[key] = build_numbers(values, column.type, gpu & (values >= 0))
    return _build_table(
        "annotations",
        columns,
        name=name,
        on_gpu=build_booleans(gpu),
        step=number_or_null(step, INT32),
        **location,
        **_build_thread(columns),
        **_build_span(columns),
        external_id=_external_id(columns),
    )


def _python_calls(columns: Columns) -> pa.Table:
    return _build_table(
        "python_calls",
        columns,
        name=columns.text("name"),
        **_build_thread(columns),
        **_build_span(columns),
        python_id=columns.number("py_id"),
        python_parent=columns.number("py_parent"),
        module_id=columns.number("py_module"),
    )


def _build_overheads(columns: Columns) -> pa.Table:
    return _build_table(
        "overheads",
        columns,
        name=columns.text("name"),
        **_build_thread(columns),
        **_build_span(columns),
    )


def _build_time(columns: Columns) -> pa.Array:
    return build_numbers(columns.values("ts")[0] + columns.base_ns, INT64)


def _build_flows(columns: Columns) -> pa.Table:
    codes, categories = columns.codes("cat")
    labels = build_texts([_FLOW_CATEGORIES.get(c.lower(), c) for c in categories.to_pylist()])
    known_codes, known_names = codes_of(labels)
    return _build_table(
        "flows",
        columns,
        category=decode_texts(take_or(known_codes, codes, np.int32(-1)), known_names),
        flow=columns.number("id"),
        flow_text=columns.text("id_text"),
        is_start=build_booleans(match_texts(columns.text("ph", compact=False), "s".__eq__)),
        **_build_thread(columns),
        time_ns=_build_time(columns),
    )


def _build_memory(columns: Columns) -> pa.Table:
    return _build_table(
        "memory",
        columns,
        name=columns.text("name"),
        **_build_thread(columns),
        time_ns=_build_time(columns),
        device_type=columns.number("dev_type", INT32),
        device=columns.number("dev_id", INT32),
        address=columns.text("addr"),
        size_bytes=columns.number("alloc_bytes"),
        allocated_bytes=columns.number("total_alloc"),
        reserved_bytes=columns.number("total_reserved"),
    )


def _build_counters(columns: Columns) -> pa.Table:
    """A row for each series of each counter event; their names are free, so they are JSON. Metrics
    of a profiled range are counters with the kernel, or what else it is called, as series."""
    codes, dictionary = columns.codes("args_rest")
    decoded = [_read_series(value) for value in dictionary.to_pylist()] + [{}]
    rows = []
    series = []
    values = []
    for row, code in enumerate(codes.tolist()):  # a counter may have any number of series
        for name, value in decoded[code].items():
            rows.append(row)
            series.append(name)
            values.append(value)
    take = np.array(rows, np.int64)
    of_events = {
        "event": build_numbers(columns.rows, INT64),
        "name": columns.text("name"),
        "process": columns.text("pid"),
        "time_ns": _build_time(columns),
    }
    of_series = {name: column.take(pa.array(take)) for name, column in of_events.items()}
    of_series["series"] = build_texts(series)
    is_of_range = match_texts(columns.text("cat"), PROFILER_RANGE.__eq__)[take]
    if is_of_range.any():
        of_series |= _metrics_of_ranges(of_series, is_of_range)
    of_series["value"] = build_numbers(np.array(values, np.float64), FLOAT64)
    return build_table(_find_schema("counters"), of_series, len(rows))


def _metrics_of_ranges(counters: dict[str, pa.Array], is_of_range: Mask) -> dict[str, pa.Array]:
    """Return the names of counters of which some are metrics that the profiler took of ranges."""
    columns = (counters[name].to_pylist() for name in ("name", "series", "process"))
    named = [
        (series, name, RANGE_PROFILER) if is_metric else (name, series, process)
        for name, series, process, is_metric in zip(*columns, is_of_range.tolist(), strict=True)
    ]
    names = zip(*named, strict=True)
    return dict(zip(("name", "series", "process"), map(build_texts, map(list, names)), strict=True))


def _read_series(arguments: str) -> dict[str, float]:
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    if not isinstance(decoded, dict):
        return {}
    return {k: float(v) for k, v in decoded.items() if isinstance(v, int | float)}


@lru_cache(maxsize=100_000)  # ranks have most names in common
def step_number(name: str) -> int:
    """Return k of `ProfilerStep#k`, -1 for any other name."""
    match = _STEP_NAME.fullmatch(name)
    return int(match[1]) if match and INDEX.believes(int(match[1])) else -1


_STEP_NAME = re.compile(STEP + r"([0-9]{1,10})")


_MAKERS: dict[str, Callable[[Columns], pa.Table]] = {
    "events": _build_events,
    "kernels": _build_kernels,
    "cpu_ops": _cpu_ops,
    "launches": _build_launches,
    "syncs": _build_syncs,
    "annotations": _build_annotations,
    "python_calls": _python_calls,
    "overheads": _build_overheads,
    "flows": _build_flows,
    "memory": _build_memory,
    "counters": _build_counters,
}
