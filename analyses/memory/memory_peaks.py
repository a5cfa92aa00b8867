"""Memory at its highest, and what held it."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_booleans, build_numbers, build_texts, codes_of, mark_valid
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import labels_of
from htk.quantities.measures.memory_categories import Categories
from htk.quantities.measures.memory_use import MemoryUse, count_failures, operators_at

BEFORE = "(allocated before the recording)"
NOWHERE = "(outside operators)"
By = Literal["holder", "category"]

RETURNS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Recording of the rank."),
    device_kind=(TEXT, "cpu, gpu, …; 'not recorded' by files that do not say."),
    device=(INT32, "Index of the device."),
    peak_ns=(INT64, "When most was allocated, absolute."),
    peak_bytes=(INT64, "Allocated then."),
    reserved_bytes=(INT64, "Reserved by the allocator then; null where not recorded."),
    reserved_bytes_max=(INT64, "Most that was reserved at any time."),
    unused_pct=(FLOAT64, "Share of the reserved that was not allocated at the peak."),
    failed=(INT64, "Allocations that failed for want of memory."),
    holder=(TEXT, "Operator (or stack, or category) whose allocations were alive at the peak."),
    held_bytes=(INT64, "Bytes of them."),
    held_pct=(FLOAT64, "Share of the peak."),
    blocks=(INT64, "Blocks; null where blocks cannot be told apart."),
    inferred=(BOOL, "The category was not recorded: told from phase and life of the block."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("holder", "held_bytes", horizontal=True),
    needs=("memory",),
    spread=ByRank(totals=("events",), when={"by": ("holder",)}),
)
def memory_peaks(
    memory: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    *,
    by: Annotated[
        By, "What a row stands for: what allocated it, or a category such as activation."
    ] = "holder",
    n: Annotated[int, "Rows to show, and one for the rest of each device; 0: all."] = 20,
) -> pa.Table:
    """When is memory at its highest, and what holds it then?

    A block is alive at the peak if its last event up to then is its allocation; it is held by the
    innermost operator of the thread that allocated it, or where a snapshot tells a stack by its
    innermost frame, or where only categories are told by its category. Where none is recorded,
    categories are inferred from the phase of the step that allocates a block and the phases that
    it lives through.
    """
    use = MemoryUse.from_memory(memory)
    if not len(use.devices):  # nothing but failures
        return RETURNS.empty_table()
    if by == "category":
        label = _of_categories(Categories.from_use(use, cpu_ops, op_links, op_passes, annotations))
    else:
        label = _of_holders(use, cpu_ops)
    parts = [_Peak(use, k, label, n) for k in range(len(use.devices))]  # a few devices
    device = np.concatenate([np.full(len(p.names), k) for k, p in enumerate(parts)])
    peak = np.array([p.row for p in parts], np.int64)[device]
    held = np.concatenate([p.held for p in parts])
    blocks = np.concatenate([p.blocks for p in parts])
    allocated = use.allocated[peak]
    reserved = use.reserved[peak]
    most = use.devices.max(use.reserved)[device]
    answer = pa.table(
        [
            *use.who(device),
            build_numbers(use.time[peak], INT64),
            build_numbers(allocated, INT64),
            build_numbers(reserved, INT64, reserved > 0),
            build_numbers(most, INT64, most > 0),
            build_percent(reserved - allocated, np.maximum(reserved, 0)),
            build_numbers(count_failures(memory, use)[device], INT64),
            build_texts([name for p in parts for name in p.names]),
            build_numbers(held, INT64),
            build_percent(held, np.maximum(allocated, 0)),
            build_numbers(blocks, INT64, blocks != NONE),
            build_booleans(np.full(len(held), label.inferred)),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, events=use.table.num_rows, holders=label.source)


@dataclass(frozen=True)
class _Labels:
    """What a block's holder is called."""

    source: str
    code: Ints
    names: list[str]
    inferred: bool = False


def _of_categories(categories: Categories) -> _Labels:
    source = "category, inferred from phase and life" if categories.inferred else "category"
    return _Labels(source, categories.code, categories.names, categories.inferred)


def _of_holders(use: MemoryUse, cpu_ops: pa.Table) -> _Labels:
    stacks = use.table["call_stack"]
    categories = use.table["category"]
    if mark_valid(stacks).any():
        code, names = labels_of(stacks)
        frames = [name.partition(";")[0] or NOWHERE for name in names]
        return _Labels("innermost frame of the recorded stack", code, frames)
    if mark_valid(categories).any():
        code, names = labels_of(categories)
        return _Labels("category", code, [name or "unknown" for name in names])
    row = operators_at(use.table, cpu_ops)
    code, names = labels_of(cpu_ops["name"])
    code = np.append(code, len(names) - 1)[row]
    return _Labels("innermost operator", code, [name or NOWHERE for name in names])


class _Peak:
    """The peak of one device (its row), and its holders, largest first."""

    def __init__(self, use: MemoryUse, device: int, label: _Labels, n: int) -> None:
        rows = np.flatnonzero(use.devices.group_ids == device)
        self.row = int(rows[np.argmax(use.allocated[rows])])
        before = rows[rows <= self.row]
        if mark_valid(use.table["address"])[rows].any():
            alive = _find_alive(use, before)
            sums, blocks = _sum_by_code(label.code[alive], use.size[alive], len(label.names))
        else:
            sums, _ = _sum_by_code(label.code[before], use.size[before], len(label.names))
            blocks = fill_none(len(sums))
        order = order_by(-sums)
        order = order[sums[order] > 0]
        shown = order[: n or None]
        rest = order[n or len(order) :]
        self.names = [label.names[k] for k in shown.tolist()]
        held = sums[shown].tolist()
        many = blocks[shown].tolist()
        if len(rest):
            self.names.append("others")
            held.append(int(sums[rest].sum()))
            many.append(int(blocks[rest].sum()) if blocks[rest[0]] != NONE else NONE)
        left = int(use.allocated[self.row]) - sum(held)
        if left > 0 or not held:
            self.names.append(BEFORE)
            held.append(left)
            many.append(NONE)
        self.held = np.array(held, np.int64)
        self.blocks = np.array(many, np.int64)


def _find_alive(use: MemoryUse, before: Ints) -> Ints:
    """Return the rows of the allocations that no release has followed."""
    with_address = before[mark_valid(use.table["address"])[before] & (use.size[before] != 0)]
    address = codes_of(use.table["address"])[0][with_address].astype(np.int64)
    groups = Groups.by_keys(address[::-1])  # so that the first of each is its last
    last = with_address[::-1][groups.first_row]
    return np.asarray(last[use.size[last] > 0])


def _sum_by_code(code: Ints, size: Ints, length: int) -> tuple[Ints, Ints]:
    total = np.zeros(length, np.int64)
    np.add.at(total, code, size)
    return total, np.bincount(code, minlength=length).astype(np.int64)
