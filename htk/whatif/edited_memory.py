"""Allocations as they are with more or fewer activations: what the written prediction tells."""

from typing import NamedTuple

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import NONE, Ints
from htk.quantities.measures.memory_use import MemoryUse
from htk.traces.trace.file import TraceFile
from htk.whatif.edited_job import edited_job
from htk.whatif.memory import activations_ratio
from htk.whatif.parallelism import find_sharded
from htk.whatif.recorded_peaks import RecordedBlocks, tables_of_rank
from htk.whatif.recorded_step import Baseline
from htk.whatif.shapes import read_inputs


class Allocation(NamedTuple):
    """Bytes of an event, and of the device after it."""

    size: int
    allocated: int
    reserved: int


def edited_allocations(
    part: TraceFile, start: Baseline, edits: tuple[tuple[str, str], ...], kept: float
) -> dict[int, Allocation] | None:
    """Return what the events of a file allocate after edits; None: it is not known.

    `kept`: tokens of a rank's micro-batch, over those recorded.
    """
    if start.memory is None or part.rank is None:
        return {} if kept == 1 else None
    ratio = activations_ratio(start.memory, edited_job(start.job, edits), kept)
    if ratio is None or ratio == 1:
        return None if ratio is None else {}
    tables = tables_of_rank(start.tables, part.rank)
    use = MemoryUse.from_memory(tables["memory"])
    layout = find_sharded(start.model)
    blocks = RecordedBlocks.from_tables(
        tables, use, read_inputs(start.model).tokens, layout.unit_bytes if layout else ()
    )
    size = use.size.astype(np.float64)
    size[blocks.born[blocks.grows]] *= ratio
    gone = blocks.freed[blocks.grows]
    size[gone[(gone != NONE) & (use.size[gone] < 0)]] *= ratio
    allocated = use.allocated + blocks.held(use, blocks.grows) * (ratio - 1)
    reserved = read_numbers(use.table["reserved_bytes"], 0)
    unused = reserved - _find_highest(use, use.allocated)
    most = np.where(
        reserved > 0, _find_highest(use, np.rint(allocated).astype(np.int64)) + unused, 0
    )
    events = read_numbers(use.table["event"]).tolist()
    columns = np.rint(np.stack([size, allocated, most], axis=1)).astype(np.int64)
    return dict(zip(events, map(Allocation._make, columns.tolist()), strict=True))


def _find_highest(use: MemoryUse, held: Ints) -> Ints:
    """Return the most that each device has held until each event."""
    highest = np.empty_like(held)
    for device in range(len(use.devices)):
        of_device = use.devices.group_ids == device
        highest[of_device] = np.maximum.accumulate(held[of_device])
    return highest
