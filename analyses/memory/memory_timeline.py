"""Memory over time."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_booleans, build_numbers, decode_texts
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Line
from htk.base.core.spread import ByRank
from htk.base.schema import BOOL, INT32, INT64, TEXT, table
from htk.quantities.measures.memory_categories import Categories
from htk.quantities.measures.memory_use import MemoryUse

By = Literal["device", "category"]

RETURNS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Recording of the rank."),
    device_kind=(TEXT, "cpu, gpu, …; 'not recorded' by files that do not say."),
    device=(INT32, "Index of the device."),
    category=(TEXT, "parameter, activation, …; null for the whole device."),
    time_ns=(INT64, "When, absolute."),
    allocated_bytes=(INT64, "Allocated from then on, until the next row."),
    reserved_bytes=(INT64, "Reserved by the allocator then; null where not recorded."),
    events=(INT64, "Allocations and releases since the row before."),
    inferred=(BOOL, "The category was not recorded: told from phase and life of the block."),
)


@analysis(
    returns=RETURNS,
    chart=Line("time_ns", "allocated_bytes", color="device_kind", steps=True),
    needs=("memory",),
    spread=ByRank(totals=("events",), when={"by": ("device",)}),
)
def memory_timeline(
    memory: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    *,
    slices: Annotated[int, "Slices of time of equal width."] = 50,
    by: Annotated[By, "What a row stands for: a device, or a category of its memory."] = "device",
) -> pa.Table:
    """How much memory is in use, over time?

    From memory events of a profile, an exported memory timeline or a snapshot with history. Of each
    slice of time with events the highest point is given, so that no peak is lost, and the last,
    which holds until the next row: drawn as steps the rows are the memory in use, and between the
    two points of a slice alone something may be left out. By category only what the recording
    added is counted; a category that was not recorded is inferred from the phase that allocates a
    block and those that it lives through.
    """
    use = MemoryUse.from_memory(memory)
    kind, allocated = use.devices.group_ids, use.allocated
    chosen = fill_none(len(kind))
    names = [""]
    inferred = False
    if by == "category":
        categories = Categories.from_use(use, cpu_ops, op_links, op_passes, annotations)
        chosen, names, inferred = categories.code, categories.names, categories.inferred
        allocated = Groups.by_keys([kind, chosen]).running(use.size)
    series = Groups.by_keys([kind, chosen])
    sliced = Groups.by_keys([series.group_ids, _number_slices(use, max(slices, 1))])
    shown = _highest_and_last(sliced, allocated)
    reserved = use.reserved[shown]
    with_reserved = (reserved != NONE) & (by == "device")
    answer = pa.table(
        [
            *use.who(kind[shown]),
            decode_texts(chosen[shown], pa.array(names)),
            build_numbers(use.time[shown], INT64),
            build_numbers(allocated[shown], INT64),
            build_numbers(reserved, INT64, with_reserved),
            build_numbers(_events_since(series, shown), INT64),
            build_booleans(np.full(len(shown), inferred)),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, events=len(kind), categories_inferred=inferred)


def _number_slices(use: MemoryUse, slices: int) -> Ints:
    first = use.devices.min(use.time)[use.devices.group_ids]
    last = use.devices.max(use.time)[use.devices.group_ids]
    width = np.maximum((last - first) // slices + 1, 1)
    return np.asarray((use.time - first) // width)


def _highest_and_last(slices: Groups, values: Ints) -> Ints:
    """Rows with the first of the largest values of each group, and its last row, in order."""
    row = np.arange(len(values))
    order = order_by(slices.group_ids, -values, row)
    first = np.searchsorted(slices.group_ids[order], np.arange(len(slices)))
    highest = order[first]
    last = slices.max(row)
    group = np.tile(np.arange(len(slices)), 2)
    both = np.unique(np.column_stack([group, np.concatenate([highest, last])]), axis=0)
    return np.asarray(both[:, 1])


def _events_since(series: Groups, shown: Ints) -> Ints:
    """Return how many events of its series each shown row stands for: its own and those since the
    shown row before."""
    number = series.rank_within(np.arange(len(series.group_ids)))[shown]
    group = series.group_ids[shown]
    before = np.append(NONE, number[:-1])[: len(number)]
    before[mark_heads(group)] = NONE
    return np.asarray(number - before)
