"""The part of a trace that HTA keeps: what is launched before the last step begins."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.base.columns.arrow import build_booleans, mark_valid, read_numbers
from htk.quantities.derived.links import steps_of
from htk.traces.trace.opening import open_trace
from tests.hta_truth import hta_truth


def kept(shared: Path, trace: str) -> dict[str, pa.Table]:
    tables = open_trace(shared / "traces/hta" / trace).tables
    steps, starts, _ = steps_of(tables["annotations"])
    cut = int(starts[-1]) if len(steps) > 1 else 1 << 62
    links, ops = tables["kernel_links"], tables["op_links"]
    launched = mark_valid(links["launch_row"]) & (read_numbers(links["launch_start_ns"]) < cut)
    column = ops.schema.get_field_index("selected")
    begun = build_booleans(read_numbers(tables["cpu_ops"]["start_ns"]) < cut)
    return {
        "kernels": tables["kernels"].filter(pa.array(launched)),
        "kernel_links": links.filter(pa.array(launched)),
        "launches": tables["launches"],
        "cpu_ops": tables["cpu_ops"],
        "op_links": ops.set_column(column, ops.schema.field(column), begun),
    }


def expected(shared: Path, trace: str) -> dict[str, Any]:
    output: dict[str, Any] = hta_truth(shared)["hta_output"][trace]
    return output
