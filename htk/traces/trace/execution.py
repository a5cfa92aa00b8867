"""What an execution trace beside a profiler's trace knows of its operators and collectives.

Both number record functions alike, within one process. A trace is of the same run if the operators
of equal numbers have equal names; only then does it fill in what the profiler left out.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import build_numbers, build_texts, codes_of, mark_valid, read_numbers
from htk.base.columns.groups import row_of
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.names.collectives import dtype_bytes
from htk.base.schema import INT64, STRING, TEXT

FORMAT = "execution_trace"
FILLED = ("cpu_ops", "collectives")  # tables
_OF_OPERATORS = (
    "input_dims", "input_types", "input_strides", "concrete_inputs", "kernel_file",
    "kernel_backend",
)  # fmt: skip
_OF_CALLS = (
    "group", "group_desc", "group_size", "dtype", "in_elements", "out_elements", "in_split",
    "out_split",
)  # fmt: skip
_SAME_RUN = 0.95  # of the operators with equal numbers have equal names
_INFERRED = "inferred_columns"


def filled_operators(ops: pa.Table, nodes: pa.Table) -> pa.Table:
    """Return operators with the shapes, types and values that their nodes have."""
    node = nodes_of(ops, nodes)
    return _fill_from_nodes(ops, nodes, node, _OF_OPERATORS)


def filled_collectives(
    calls: pa.Table, ops: pa.Table, nodes: pa.Table, groups: pa.Table
) -> pa.Table:
    """Return collectives with the group and sizes that the nodes of their operators have, and the
    ranks of groups; what was filled in stands in `inferred_columns`."""
    of_op = row_of(read_numbers(ops["event"], NONE), read_numbers(calls["op_event"], NONE - 1))
    node = take_or(nodes_of(ops, nodes), of_op)
    filled = _fill_from_nodes(calls, nodes, node, _OF_CALLS)
    filled = _with_bytes(_with_ranks(filled, groups))
    return _with_inferred(calls, filled)


def nodes_of(ops: pa.Table, nodes: pa.Table) -> Ints:
    """Return the node of each operator (NONE: none); none at all if the run is another."""
    ids = read_numbers(nodes["record_function_id"], NONE)
    own = "record_function_id" if mark_valid(ops["record_function_id"]).any() else "external_id"
    wanted = read_numbers(ops[own], NONE)  # before 2023 the profiler wrote it as the other
    node = row_of(ids, np.where(wanted > 0, wanted, NONE - 1))
    both = np.flatnonzero(node != NONE)
    codes, names = codes_of(ops["name"])
    node_codes, node_names = codes_of(nodes["name"])
    number_of = {name: k for k, name in enumerate(node_names.to_pylist())}
    same = np.array([number_of.get(name, -2) for name in names.to_pylist()] + [-2], np.int64)
    agree = same[codes[both]] == node_codes[node[both]]
    if not len(both) or agree.mean() < _SAME_RUN:
        return fill_none(len(node))
    node[both[~agree]] = NONE
    return node


def _fill_from_nodes(
    table: pa.Table, nodes: pa.Table, node: Ints, columns: tuple[str, ...]
) -> pa.Table:
    if not (node != NONE).any():
        return table
    rows = build_numbers(np.maximum(node, 0), INT64, node != NONE)
    for name in columns:
        if table[name].null_count:
            table = fill_column(table, name, nodes[name].take(rows))
    return table


def fill_column(table: pa.Table, name: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    """Return the column with these values where it has none."""
    index = table.schema.get_field_index(name)
    field = table.schema.field(name)
    own = table[name]
    if field.type == TEXT:
        both = pc.coalesce(own.cast(STRING), values.cast(STRING))
        return table.set_column(index, field, both.dictionary_encode().cast(TEXT))
    return table.set_column(index, field, pc.coalesce(own, values.cast(field.type)))


def _with_ranks(calls: pa.Table, groups: pa.Table) -> pa.Table:
    ranks = dict(zip(groups["group"].to_pylist(), groups["group_ranks"].to_pylist(), strict=True))
    codes, names = codes_of(calls["group"])
    listed = [*(ranks.get(name) for name in names.to_pylist()), None]
    if not any(listed):
        return calls
    return fill_column(
        calls, "group_ranks", build_texts(listed).take(pa.array(codes % len(listed)))
    )


def _with_bytes(calls: pa.Table) -> pa.Table:
    codes, names = codes_of(calls["dtype"])
    width = np.array([*(dtype_bytes(n) or NONE for n in names.to_pylist()), NONE], np.int64)[codes]
    for side in ("in", "out"):
        elements = read_numbers(calls[f"{side}_elements"], NONE)
        has = (width > 0) & (elements >= 0) & (elements < 2**56)
        if calls[f"{side}_bytes"].null_count:
            moved = build_numbers(np.where(has, elements, 0) * width, INT64, has)
            calls = fill_column(calls, f"{side}_bytes", moved)
    return calls


def _with_inferred(before: pa.Table, after: pa.Table) -> pa.Table:
    """Say of each row which columns have a value that they had not."""
    new = {
        name: mark_valid(after[name]) & ~mark_valid(before[name])
        for name in after.column_names
        if name != _INFERRED and before[name].null_count
    }
    new = {name: rows for name, rows in new.items() if rows.any()}
    if not new:
        return after
    listed = before[_INFERRED].to_pylist()
    for row in np.flatnonzero(np.logical_or.reduce(list(new.values()))).tolist():
        names = [*filter(None, [listed[row]]), *(name for name, rows in new.items() if rows[row])]
        listed[row] = ",".join(names)
    index = after.schema.get_field_index(_INFERRED)
    return after.set_column(index, after.schema.field(index), build_texts(listed))
