"""From columns of a foreign profile to tables of the vocabulary: names, kinds, event numbers."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base import schema as vocabulary
from htk.base.columns.arrow import (
    build_numbers,
    build_table,
    build_texts,
    codes_of,
    constant_text,
    decode_texts,
    drop_fields,
    read_numbers,
    read_times,
)
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.parser import Parsed
from htk.base.mappings import Facts, Fields, NamedTables
from htk.base.names.kinds import kind_of
from htk.base.schema import INT32, INT64, STRING, TEXT
from htk.parsers.common.impossible import mend_impossible
from htk.parsers.common.log_records import Issues

FARTHEST_NS = 1 << 61  # times beyond it are damage
_STEP = re.compile(
    r"^(ProfilerStep#|(?:train(?:ing)?[_ ]?)?(?:step|iter|iteration)[ _#:=-]*)(\d{1,9})$", re.I
)
ACTIVITIES = ("kernel", "copy", "set")
_CATEGORIES = {  # as Kineto calls them, so that recordings of both can be compared
    "syncs": "cuda_sync",
    "cpu_ops": "cpu_op",
    "annotations": "user_annotation",
    "overheads": "overhead",
    "python_calls": "python_function",
}
_GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


def build_process_table(name: str, columns: Facts, length: int) -> pa.Table:
    """Return a table of one process: the given columns, the others null."""
    return build_table(drop_fields(vocabulary.TABLES[name], "rank", "cycle"), columns, length)


def build_empty_table(name: str) -> pa.Table:
    return drop_fields(vocabulary.TABLES[name], "rank", "cycle").empty_table()


def kinds_of(codes: NDArray[np.int32], names: pa.Array, activity: NDArray[Any]) -> Fields:
    """Kind and family of each activity (0 kernel, 1 copy, 2 set), asked once for a name."""
    pair = codes.astype(np.int64) * len(ACTIVITIES) + activity
    distinct, inverse = np.unique(pair, return_inverse=True)
    kinds = []
    for value in distinct.tolist():  # some hundred distinct names, not events
        code, act = divmod(value, len(ACTIVITIES))
        kinds.append(kind_of(names[code].as_py() if code >= 0 else "", ACTIVITIES[act]))
    columns = {}
    for column in ("kind", "family"):
        known_codes, labels = codes_of(build_texts([getattr(k, column) for k in kinds]))
        columns[column] = decode_texts(known_codes[inverse], labels)
    return columns


def build_activities(
    activity: int,
    name: pa.Array,
    start: Ints,
    end: Ints,
    device: Ints,
    stream: Ints,
    correlation: Ints,
    **more: pa.Array,
) -> pa.Table:
    """Rows of `kernels` of one sort (0 kernel, 1 copy, 2 set); what is below 0 is not known, and a
    correlation of 0 ties to nothing."""
    sort = np.full(len(start), activity, np.int64)
    codes, names = codes_of(name)
    return build_process_table(
        "kernels",
        {
            "device": build_optional(device, device >= 0, INT32),
            "stream": build_optional(stream, stream >= 0),
            "name": name,
            "activity": constant_text(ACTIVITIES[activity], len(start)),
            **kinds_of(codes, names, sort),
            "start_ns": build_numbers(start, INT64),
            "end_ns": build_numbers(end, INT64),
            "correlation": build_optional(correlation, correlation > 0),
            **more,
        },
        len(start),
    )


def step_numbers(name: pa.Array, spent: Ints) -> Ints:
    """Step of each range that counts steps (`ProfilerStep#7`, `step 7`, `iteration_7`), -1: none.

    Of several ways to count in one recording, that which covers most time.
    """
    codes, names = codes_of(name)
    matches = [_STEP.match(n) for n in names.to_pylist()]
    ways = [m[1].lower() if m else "" for m in matches]
    covered: Counter[str] = Counter()
    time = np.bincount(codes, spent.astype(np.float64), minlength=len(ways))
    for way, total in zip(ways, time.tolist(), strict=True):
        if way:
            covered[way] += total
    chosen = max(covered, key=lambda way: covered[way], default=None)
    steps = [int(m[2]) if m and way == chosen else -1 for m, way in zip(matches, ways, strict=True)]
    return np.array([*steps, -1], np.int64)[codes]


def int_texts(values: Ints) -> pa.Array:
    """Whole numbers (thread ids, say) as texts; each distinct one is written once."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return decode_texts(inverse, pa.array([str(v) for v in distinct.tolist()], STRING))


def spell_dimensions(columns: list[Ints]) -> pa.Array:
    """Grid or block as compact JSON [x,y,z]; null where an extent is negative: not recorded."""
    stacked = np.stack(columns, axis=1)
    distinct, inverse = np.unique(stacked, axis=0, return_inverse=True)
    written = [f"[{x},{y},{z}]" for x, y, z in distinct.tolist()]
    codes = np.where((stacked >= 0).all(axis=1), inverse.ravel(), NONE)
    return decode_texts(codes, pa.array(written, STRING))


def build_optional(values: Ints, present: Mask, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of whole numbers; what is not known or does not fit is null."""
    kind = kind or INT64
    if kind == INT32:
        present = present & (values >= -(2**31)) & (values < 2**31)
    return build_numbers(np.where(present, values, 0), kind, present)


def mark_timed(start: pa.ChunkedArray, end: pa.ChunkedArray, what: str, issues: Issues) -> Mask:
    """Return the rows whose times can be used; the others are counted."""
    low = read_numbers(start, FARTHEST_NS + 1)
    high = read_numbers(end, FARTHEST_NS + 1)
    far = (np.abs(low) > FARTHEST_NS) | (np.abs(high) > FARTHEST_NS)
    backward = ~far & (high < low)
    if far.any():
        issues.add("no_time", f"{what}: without a usable time", count=int(far.sum()))
    if backward.any():
        issues.add("negative_duration", f"{what}: end before start", count=int(backward.sum()))
    usable: Mask = ~far & ~backward
    return usable


def build_recording(
    tables: NamedTables, facts: Mapping[str, object], rank: int | None, issues: Issues
) -> Parsed:
    """Return one process: its events numbered in order of time, and when it was recorded."""
    numbered, impossible = mend_impossible(
        _number_events(tables), facts, keep_overruns=issues.keep_overruns
    )
    for seen in impossible:
        issues.add(seen.kind, seen.text, count=seen.times)
    events = numbered["events"]
    start, end = read_times(events)
    extent = {
        "start_ns": int(start.min()) if len(start) else None,
        "end_ns": int(end.max()) if len(end) else None,
        "events": len(start),
        "truncated": issues.has("truncated") or issues.has("damaged_table"),
    }
    world_size = facts.get("world_size")
    numbered["parse_issues"] = issues.table()
    return Parsed(
        numbered, rank, world_size if isinstance(world_size, int) else None, {**facts, **extent}
    )


def _number_events(tables: NamedTables) -> dict[str, pa.Table]:
    """The tables in order of time with their `event` columns, and the table of all events."""
    spans = {n: t for n, t in tables.items() if n in (*_CATEGORIES, "kernels", "launches")}
    starts = [read_numbers(t["start_ns"]) for t in spans.values()]
    order = order_by(np.concatenate(starts)) if starts else np.empty(0, np.int64)
    event = np.empty(len(order), np.int64)
    event[order] = np.arange(len(order))
    numbered = dict(tables)
    first = 0
    for name, spans_of in spans.items():
        own = event[first : first + len(spans_of)]
        index = spans_of.schema.get_field_index("event")
        field = spans_of.schema.field(index)
        with_event = spans_of.set_column(index, field, build_numbers(own, INT64))
        numbered[name] = with_event.take(pa.array(np.argsort(own)))
        first += len(spans_of)
    rows = [_events_of(name, t) for name, t in spans.items()]
    joined = pa.concat_tables(rows).unify_dictionaries().take(pa.array(order))
    columns = {name: joined[name] for name in joined.column_names}
    columns["event"] = build_numbers(np.arange(len(order)), INT64)
    numbered["events"] = build_process_table("events", columns, len(order))
    return numbered


def _events_of(name: str, spans: pa.Table) -> pa.Table:
    """Return what `events` shows of a table; GPU work stands under its device and stream."""
    on_gpu = name == "kernels"
    if on_gpu:
        codes, values = codes_of(spans["activity"])
        activity_codes = [ACTIVITIES.index(v) for v in values.to_pylist()]
        category = decode_texts(
            np.array([*activity_codes, -1], np.int32)[codes], pa.array(_GPU_CATEGORIES)
        )
    elif name == "launches":
        category = spans["api"]
    else:
        category = constant_text(_CATEGORIES[name], len(spans))
    places = ("device", "stream") if on_gpu or name == "syncs" else ("process", "thread")
    process, thread = (
        int_texts(read_numbers(spans[column])) if column in ("device", "stream") else spans[column]
        for column in places
    )
    schema = pa.schema(
        [(c, TEXT) for c in ("category", "name", "process", "thread")]
        + [(c, INT64) for c in ("start_ns", "end_ns")]
    )
    columns = [category, spans["name"], process, thread, spans["start_ns"], spans["end_ns"]]
    return pa.table(columns, schema=schema) if len(spans) else schema.empty_table()
