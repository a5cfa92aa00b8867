"""Totals of events that agree in what most questions group by: kept beside the tables of a file.

They are exact sums, counts and extremes, so that totals of files, one after the other, say what the
events of all files say, in a hundredth of their rows.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    read_booleans,
    read_keys,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints
from htk.base.names.kinds import is_copy_between_gpus
from htk.base.names.server_ranges import is_server_mark
from htk.base.schema import FLOAT64, INT64
from htk.base.schema.links import (
    GPU_WORK,
    KERNEL_TOTALS,
    LAUNCH_TOTALS,
    MEMORY_EXTENTS,
    OP_EXTENTS,
    OP_TOTALS,
    SERVER_MARKS,
    STEP_MARKS,
)
from htk.quantities.derived.cut_calls import CUT_STEPS, windows_of

_WHO = ("rank", "cycle")
_TEXTS = ("kind", "activity", "family", "name", "grid", "block")
_NUMBERS = ("device", "size_bytes")


def kernel_totals(kernels: pa.Table, kernel_links: pa.Table, kernel_passes: pa.Table) -> pa.Table:
    """Return the number and the time of activities that are alike, in the order of their first."""
    who = [name for name in _WHO if name in kernels.column_names]
    numbered = {n: read_keys(kernels[n]) for n in (*who, *_NUMBERS)}
    numbered["step"] = read_keys(kernel_links["step"])
    coded = {name: codes_of(kernels[name]) for name in _TEXTS}
    blocks = read_numbers(kernels["blocks_per_sm"], -1.0)
    again = read_booleans(kernel_passes["recomputed"])
    keys = [
        *numbered.values(),
        *(codes.astype(np.int64) for codes, _ in coded.values()),
        np.unique(blocks, return_inverse=True)[1].ravel(),
        again.astype(np.int64),
    ]
    alike = Groups.by_keys(keys)
    order = np.argsort(alike.first_row)
    first = alike.first_row[order]
    start, end = read_times(kernels)
    longest = find_longest_rows(alike, end - start)[order]
    columns = {
        name: build_numbers(values[first], KERNEL_TOTALS.field(name).type, values[first] != NONE)
        for name, values in numbered.items()
    }
    columns |= {name: decode_texts(codes[first], names) for name, (codes, names) in coded.items()}
    columns |= {
        "blocks_per_sm": build_numbers(
            blocks[first], FLOAT64, mark_valid(kernels["blocks_per_sm"])[first]
        ),
        "recomputed": build_booleans(again[first]),
        "count": build_numbers(alike.count[order], INT64),
        "total_ns": build_numbers(alike.sum(end - start)[order], INT64),
        "start_ns": build_numbers(alike.min(start)[order], INT64),
        "longest_start_ns": build_numbers(start[longest], INT64),
        "longest_ns": build_numbers((end - start)[longest], INT64),
    }
    return total_table(KERNEL_TOTALS, columns)


def find_longest_rows(groups: Groups, length: Ints) -> Ints:
    """Return the row of the longest of each group, of several the first."""
    order = order_by(groups.group_ids, -length, np.arange(len(length)))
    longest: Ints = order[np.cumsum(groups.count) - groups.count]
    return longest


def op_totals(cpu_ops: pa.Table, op_links: pa.Table) -> pa.Table:
    """Return the calls of operators of one name and shape in each step, in the order of their
    first."""
    return _sum_alike(
        OP_TOTALS,
        cpu_ops,
        {"step": op_links["step"]},
        {name: cpu_ops[name] for name in ("name", "input_dims")},
    )


def launch_totals(launches: pa.Table) -> pa.Table:
    """Return the calls that launch, by name, in the order of their first."""
    return _sum_alike(LAUNCH_TOTALS, launches, {}, {"name": launches["name"]})


def op_extents(cpu_ops: pa.Table) -> pa.Table:
    """Return the first start and the last end of the operators of each recording."""
    recordings = Groups.by_keys(
        list(_read_owner(cpu_ops).values()) or [np.zeros(cpu_ops.num_rows, int)]
    )
    start, end = read_times(cpu_ops)
    columns = of_first(OP_EXTENTS, _read_owner(cpu_ops), recordings.first_row)
    columns["start_ns"] = build_numbers(recordings.min(start), INT64)
    columns["end_ns"] = build_numbers(recordings.max(end), INT64)
    return total_table(OP_EXTENTS, columns)


def memory_extents(memory: pa.Table) -> pa.Table:
    """Return the most memory that was reserved of each type of device."""
    keys = _read_owner(memory)
    keys["device_type"] = read_keys(memory["device_type"])
    devices = Groups.by_keys(list(keys.values()))
    columns = of_first(MEMORY_EXTENTS, keys, devices.first_row)
    columns["reserved_bytes"] = build_numbers(
        devices.max(read_numbers(memory["reserved_bytes"])), INT64
    )
    return total_table(MEMORY_EXTENTS, columns)


def step_marks(annotations: pa.Table, cut_windows: pa.Table) -> pa.Table:
    """Return the annotations that are steps, in their order, and which of them are whole."""
    marks = annotations.filter(pa.array(mark_valid(annotations["step"])))
    held = [name for name in STEP_MARKS.names if name in annotations.column_names]
    of_step = [name for name in (*_WHO, "step") if name in held]
    cut = windows_of(cut_windows, CUT_STEPS)
    own = held_numbers(marks, *of_step)
    row = row_of([*held_numbers(cut, *of_step).values()], [*own.values()])
    columns = {name: marks[name] for name in held} | {"complete": build_booleans(row == NONE)}
    return total_table(STEP_MARKS, columns)


def server_marks(annotations: pa.Table) -> pa.Table:
    """Return the annotations by which servers mark iterations and captures, in their order."""
    marks = annotations.filter(pa.array(match_texts(annotations["name"], is_server_mark)))
    held = [name for name in SERVER_MARKS.names if name in annotations.column_names]
    return total_table(SERVER_MARKS, {name: marks[name] for name in held})


def gpu_work(kernels: pa.Table, kernel_links: pa.Table) -> pa.Table:
    """Return how much GPU work each recording holds, and how much of it is linked."""
    recordings = Groups.by_keys(
        list(_read_owner(kernels).values()) or [np.zeros(kernels.num_rows, int)]
    )
    length = read_lengths(kernels)
    linked = mark_valid(kernel_links["launch_row"])
    carried = read_booleans(kernel_links["carry_in"])
    lost = ~linked & ~carried
    ambiguous = read_booleans(kernel_links["ambiguous"])
    between_gpus = match_texts(kernels["name"], is_copy_between_gpus)
    sums = {
        "gpu_activities": recordings.count,
        "total_ns": recordings.sum(length),
        "linked_ns": recordings.sum(np.where(linked, length, 0)),
        "carry_in_activities": recordings.sum(carried.astype(np.int64)),
        "carry_in_ns": recordings.sum(np.where(carried, length, 0)),
        "unlinked_activities": recordings.sum(lost.astype(np.int64)),
        "unlinked_ns": recordings.sum(np.where(lost, length, 0)),
        "ambiguous_activities": recordings.sum(ambiguous.astype(np.int64)),
        "copies_between_gpus_ns": recordings.sum(np.where(between_gpus, length, 0)),
    }
    columns = of_first(GPU_WORK, _read_owner(kernels), recordings.first_row)
    columns |= {name: build_numbers(values, INT64) for name, values in sums.items()}
    return total_table(GPU_WORK, columns)


def _sum_alike(
    schema: pa.Schema,
    events: pa.Table,
    numbered: Mapping[str, pa.ChunkedArray],
    named: Mapping[str, pa.ChunkedArray],
) -> pa.Table:
    """Return the number and the time of events that agree in these columns."""
    keys = _read_owner(events)
    keys |= {name: read_keys(c) for name, c in numbered.items()}
    coded = {name: codes_of(column) for name, column in named.items()}
    groups = Groups.by_keys([*keys.values(), *(c.astype(np.int64) for c, _ in coded.values())])
    order = np.argsort(groups.first_row)
    first = groups.first_row[order]
    length = read_lengths(events)
    columns = of_first(schema, keys, first)
    columns |= {name: decode_texts(codes[first], names) for name, (codes, names) in coded.items()}
    columns["count"] = build_numbers(groups.count[order], INT64)
    columns["total_ns"] = build_numbers(groups.sum(length)[order], INT64)
    return total_table(schema, columns)


def _read_owner(events: pa.Table) -> dict[str, Ints]:
    """Return whose the events are; those of one file do not say."""
    return held_numbers(events, *_WHO)


def held_numbers(table: pa.Table, *names: str) -> dict[str, Ints]:
    """Return those of some columns that a table has."""
    held = [name for name in names if name in table.column_names]
    return {name: read_keys(table[name]) for name in held}


def of_first(schema: pa.Schema, keys: Mapping[str, Ints], first: Ints) -> dict[str, pa.Array]:
    """Return the columns of keys, by the first row of each."""
    return {
        name: build_numbers(values[first], schema.field(name).type, values[first] != NONE)
        for name, values in keys.items()
    }


def total_table(schema: pa.Schema, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Return a table of those columns of a schema that there are."""
    fields = [field for field in schema if field.name in columns]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))
