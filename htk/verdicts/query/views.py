"""Tables joined beforehand: what most queries would begin with."""

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from htk.base.columns.arrow import build_table
from htk.base.schema import BOOL, DERIVED, INT32, INT64, TABLES, TEXT, table
from htk.traces.trace.trace import Trace


class View(NamedTuple):
    """A table that only queries know."""

    meaning: str
    columns: pa.Schema
    reads: tuple[str, ...]
    make: Callable[[Trace], pa.Table]


def _copy_columns(source: str, *names: str) -> dict[str, tuple[pa.DataType, str]]:
    """Columns as a table of the vocabulary has them."""
    schema = {**TABLES, **DERIVED}[source]
    fields = {name: schema.field(name) for name in names}
    return {n: (f.type, (f.metadata or {}).get(b"doc", b"").decode()) for n, f in fields.items()}


_OF_KERNELS = (
    "rank", "cycle", "device", "stream", "name", "activity", "kind", "family", "start_ns", "end_ns",
)  # fmt: skip
_KERNELS_WITH_OPS = table(
    **_copy_columns("kernels", *_OF_KERNELS),
    duration_ns=(INT64, "Its length."),
    step=(INT32, "ProfilerStep that launched it; null: none."),
    op=(TEXT, "Innermost CPU operator round the launch; null: none."),
    annotation=(TEXT, "Innermost user range (not a step) round the launch; null: none."),
    launch=(TEXT, "The runtime call that launched it; null: unlinked."),
    launch_start_ns=(INT64, "Start of that call."),
    launch_end_ns=(INT64, "End of that call."),
    carry_in=(BOOL, "Launched before the recording began."),
)
_OF_OPS = (
    "rank", "cycle", "name", "process", "thread", "start_ns", "end_ns", "sequence", "input_dims",
    "input_types", "module_hierarchy",
)  # fmt: skip
_OPS_WITH_STEPS = table(
    **_copy_columns("cpu_ops", *_OF_OPS),
    duration_ns=(INT64, "Its length."),
    step=(INT32, "ProfilerStep it ran in; null: none."),
    parent_name=(TEXT, "The operator that called it; null: none."),
    forward=(TEXT, "For a backward operator: its forward one."),
    annotation=(TEXT, "Innermost user range (not a step) round it; null: none."),
    depth=(INT32, "0 for an operator called by none."),
)


def _kernels_with_ops(trace: Trace) -> pa.Table:
    tables = trace.tables
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    joined = {
        "op": tables["cpu_ops"]["name"].take(links["op_row"]),
        "annotation": tables["annotations"]["name"].take(links["annotation_row"]),
        "launch": tables["launches"]["name"].take(links["launch_row"]),
    }
    return _join_links(_KERNELS_WITH_OPS, kernels, links, joined)


def _ops_with_steps(trace: Trace) -> pa.Table:
    tables = trace.tables
    ops = tables["cpu_ops"]
    links = tables["op_links"]
    joined = {
        "parent_name": ops["name"].take(links["parent_row"]),
        "forward": ops["name"].take(links["forward_row"]),
        "annotation": tables["annotations"]["name"].take(links["annotation_row"]),
    }
    return _join_links(_OPS_WITH_STEPS, ops, links, joined)


def _join_links(
    schema: pa.Schema, rows: pa.Table, links: pa.Table, joined: dict[str, pa.ChunkedArray]
) -> pa.Table:
    """Return each row with its links beside it and what they lead to."""
    import pyarrow.compute as pc

    joined["duration_ns"] = pc.subtract(rows["end_ns"], rows["start_ns"])
    for source in (rows, links):
        joined |= {name: source[name] for name in schema.names if name in source.column_names}
    return build_table(schema, joined, rows.num_rows)


VIEWS = {
    "kernels_with_ops": View(
        "GPU activities with operator, step, annotation and launch",
        _KERNELS_WITH_OPS,
        ("kernels", "kernel_links", "cpu_ops", "annotations", "launches"),
        _kernels_with_ops,
    ),
    "ops_with_steps": View(
        "CPU operators with step, caller, forward operator and annotation",
        _OPS_WITH_STEPS,
        ("cpu_ops", "op_links", "annotations"),
        _ops_with_steps,
    ),
}
