"""Memory over time."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.columns.arrow import boolean, number, text
from htk.columns.groups import Groups
from htk.columns.types import NONE, Ints
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Line
from htk.measures.memory_categories import Categories
from htk.measures.memory_use import MemoryUse
from htk.schema import TEXT, table

By = Literal["device", "category"]

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    device_kind=(TEXT, "cpu, gpu, …; 'not recorded' by files that do not say."),
    device=(pa.int32(), "Index of the device."),
    category=(TEXT, "parameter, activation, …; null for the whole device."),
    time_ns=(pa.int64(), "When, absolute."),
    allocated_bytes=(pa.int64(), "Most allocated in the slice of time, reached at time_ns."),
    reserved_bytes=(pa.int64(), "Reserved by the allocator then; null where not recorded."),
    events=(pa.int64(), "Allocations and releases in the slice."),
    inferred=(pa.bool_(), "The category was not recorded: told from phase and life of the block."),
)


@analysis(
    returns=RETURNS,
    chart=Line("time_ns", "allocated_bytes", color="device_kind"),
    needs=("memory",),
)
def memory_timeline(
    memory: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    *,
    points: Annotated[int, "Slices of time for each device."] = 200,
    by: Annotated[By, "Whole devices, or each category of a device."] = "device",
) -> pa.Table:
    """How much memory is in use, over time?

    From memory events of a profile, an exported memory timeline or a snapshot with history. Of each
    slice of time the highest point is given, so that no peak is lost; slices without events are
    left out. By category only what the recording added is counted; a category that was not
    recorded is inferred from the phase that allocates a block and those that it lives through.
    """
    use = MemoryUse.of(memory)
    kind, allocated = use.devices.group_ids, use.allocated
    chosen, names, inferred = np.full(len(kind), NONE, np.int64), [""], False
    if by == "category":
        categories = Categories.of(use, cpu_ops, op_links, op_passes, annotations)
        chosen, names, inferred = categories.code, categories.names, categories.inferred
        allocated = Groups.by_keys(np.column_stack([kind, chosen])).running(use.size)
    slices = Groups.by_keys(np.column_stack([kind, chosen, _slice(use, max(points, 1))]))
    top = _highest(slices, allocated)
    reserved = use.reserved[top]
    with_reserved = (reserved != NONE) & (by == "device")
    answer = pa.table(
        [
            *use.who(kind[top]),
            text(chosen[top], pa.array(names)),
            number(use.time[top], pa.int64()),
            number(allocated[top], pa.int64()),
            number(reserved, pa.int64(), with_reserved),
            number(slices.count, pa.int64()),
            boolean(np.full(len(top), inferred)),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, events=len(kind), categories_inferred=inferred)


def _slice(use: MemoryUse, points: int) -> Ints:
    first = use.devices.min(use.time)[use.devices.group_ids]
    last = use.devices.max(use.time)[use.devices.group_ids]
    width = np.maximum((last - first) // points + 1, 1)
    return np.asarray((use.time - first) // width)


def _highest(groups: Groups, values: Ints) -> Ints:
    """Of each group the first row with its largest value."""
    order = np.lexsort((np.arange(len(values)), -values, groups.group_ids))
    begin = np.searchsorted(groups.group_ids[order], np.arange(len(groups)))
    return np.asarray(order[begin])
