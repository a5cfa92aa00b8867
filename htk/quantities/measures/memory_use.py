"""Memory events told apart by device: what the analyses of memory share."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    decode_texts,
    mark_valid,
    match_texts,
    number_or_null,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Nested
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.schema import INT32
from htk.base.schema.profile import FAILED_ALLOCATION
from htk.quantities.measures.passes import threads_of

# c10::DeviceType; accelerators other than CUDA and HIP keep their number.
_KINDS = {0: "cpu", 1: "gpu", 6: "gpu", 12: "xpu", 13: "mps", 20: "privateuse"}


@dataclass(frozen=True)
class MemoryUse:
    """Allocations and releases of each recording, device after device, in the order of time.

    What was allocated or freed between two recordings is in neither.
    """

    table: pa.Table  # sorted
    devices: Groups  # keys: rank, cycle, device type, device

    @classmethod
    def from_memory(cls, memory: pa.Table) -> "MemoryUse":
        used = is_use(memory)
        events = memory if used.all() else memory.filter(pa.array(used))
        keys = _read_devices(events)
        order = order_by(*keys.T, read_numbers(events["time_ns"]), read_numbers(events["event"]))
        if (order[1:] < order[:-1]).any():
            events = events.take(pa.array(order))
            keys = keys[order]
        return cls(events, Groups.by_keys(keys))

    @property
    def time(self) -> Ints:
        return read_numbers(self.table["time_ns"])

    @property
    def size(self) -> Ints:
        return read_numbers(self.table["size_bytes"])

    @property
    def allocated(self) -> Ints:
        return read_numbers(self.table["allocated_bytes"])

    @cached_property
    def reserved(self) -> Ints:
        """Reserved after each event; NONE where not recorded, as of a CPU, which writes 0."""
        reserved = read_numbers(self.table["reserved_bytes"], NONE)
        return np.where(self.devices.max(reserved)[self.devices.group_ids] > 0, reserved, NONE)

    def who(self, devices: Ints) -> list[pa.Array]:
        """Return the columns rank, cycle, device_kind and device of some devices."""
        rank, cycle, kind, device = self.devices.keys[devices].T
        names = [*_KINDS.values(), "not recorded"]
        kinds = list(_KINDS)
        codes = [names.index(_KINDS[k]) if k in kinds else len(names) - 1 for k in kind.tolist()]
        return [
            number_or_null(rank, INT32),
            number_or_null(cycle, INT32),
            decode_texts(np.array(codes, np.int32), pa.array(names)),
            number_or_null(device, INT32),
        ]


def _read_devices(memory: pa.Table) -> Ints:
    columns = ("rank", "cycle", "device_type", "device")
    return np.array([read_numbers(memory[c], NONE) for c in columns], np.int64).T


def is_use(memory: pa.Table) -> Mask:
    """Return which events allocate or release: all but those of allocations that failed."""
    return match_texts(memory["name"], lambda name: name != FAILED_ALLOCATION)


def count_failures(memory: pa.Table, use: MemoryUse) -> Ints:
    """Allocations that failed, of each device."""
    failed = memory.filter(pa.array(match_texts(memory["name"], FAILED_ALLOCATION.__eq__)))
    wanted = {tuple(key): k for k, key in enumerate(use.devices.keys.tolist())}
    count = np.zeros(len(use.devices), np.int64)
    for key in _read_devices(failed).tolist():  # failures are few
        if tuple(key) in wanted:
            count[wanted[tuple(key)]] += 1
    return count


def operators_at(memory: pa.Table, cpu_ops: pa.Table) -> Ints:
    """Return the innermost operator of the thread at the time of each memory event, or NONE."""
    of_ops, of_events = threads_of(cpu_ops, memory)
    start = read_numbers(cpu_ops["start_ns"], NONE)
    end = read_numbers(cpu_ops["end_ns"], NONE)
    ids = read_numbers(cpu_ops["external_id"], NONE)
    ops = Nested(of_ops, start, end, ids=ids)
    has_thread = mark_valid(memory["thread"])
    return np.where(has_thread, ops.around(of_events, read_numbers(memory["time_ns"])), NONE)
