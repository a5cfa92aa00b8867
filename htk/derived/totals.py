"""Totals of events that agree in what most questions group by: kept beside the tables of a file.

They are exact sums, counts and extremes, so that totals of files, one after the other, say what the
events of all files say, in a hundredth of their rows.
"""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import boolean, codes_of, number, numbers, text, truths, valid
from htk.columns.groups import Groups
from htk.columns.types import NONE, Ints
from htk.schema.links import KERNEL_TOTALS

_WHO = ("rank", "cycle")
_TEXTS = ("kind", "activity", "family", "name", "grid", "block")
_NUMBERS = ("device", "size_bytes")


def kernel_totals(kernels: pa.Table, kernel_links: pa.Table, kernel_passes: pa.Table) -> pa.Table:
    """Return the number and the time of activities that are alike, in the order of their first."""
    who = [name for name in _WHO if name in kernels.column_names]
    numbered = {n: numbers(kernels[n], NONE).astype(np.int64) for n in (*who, *_NUMBERS)}
    numbered["step"] = numbers(kernel_links["step"], NONE).astype(np.int64)
    coded = {name: codes_of(kernels[name]) for name in _TEXTS}
    blocks = numbers(kernels["blocks_per_sm"], -1.0)
    again = truths(kernel_passes["recomputed"])
    keys = [
        *numbered.values(),
        *(codes.astype(np.int64) for codes, _ in coded.values()),
        np.unique(blocks, return_inverse=True)[1].ravel(),
        again.astype(np.int64),
    ]
    alike = Groups.by_keys(keys)
    order = np.argsort(alike.first_row)
    first = alike.first_row[order]
    start, end = numbers(kernels["start_ns"]), numbers(kernels["end_ns"])
    longest = _longest(alike, end - start)[order]
    columns = {
        name: number(values[first], KERNEL_TOTALS.field(name).type, values[first] != NONE)
        for name, values in numbered.items()
    }
    columns |= {name: text(codes[first], names) for name, (codes, names) in coded.items()}
    columns |= {
        "blocks_per_sm": number(
            blocks[first], pa.float64(), valid(kernels["blocks_per_sm"])[first]
        ),
        "recomputed": boolean(again[first]),
        "count": number(alike.count[order], pa.int64()),
        "total_ns": number(alike.sum(end - start)[order], pa.int64()),
        "start_ns": number(alike.min(start)[order], pa.int64()),
        "longest_start_ns": number(start[longest], pa.int64()),
        "longest_ns": number((end - start)[longest], pa.int64()),
    }
    fields = [f for f in KERNEL_TOTALS if f.name in columns]
    return pa.table([columns[f.name] for f in fields], schema=pa.schema(fields))


def _longest(groups: Groups, length: Ints) -> Ints:
    """Return the row of the longest of each group, of several the first."""
    order = np.lexsort((np.arange(len(length)), -length, groups.group_ids))
    longest: Ints = order[np.cumsum(groups.count) - groups.count]
    return longest
