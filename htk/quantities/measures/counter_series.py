"""Counters that the tables of one recording tell: memory, queues of launched work, copies."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, matching, numbers, read_times, valid
from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.columns.types import Floats, Ints
from htk.quantities.measures.queues import QueueLengths, Waiting


class CounterSeries(NamedTuple):
    """A value that holds from each of its times to the next."""

    family: str  # series of one family are drawn beside each other
    name: str
    unit: str  # bytes, GB/s; none of what is counted
    time: Ints  # distinct, in order
    value: Ints | Floats


def counter_series(
    kernels: pa.Table, kernel_links: pa.Table, memory: pa.Table
) -> Iterator[CounterSeries]:
    """Yield memory in use and reserved, launches that wait on each stream, the rate of copies."""
    yield from _memory(memory)
    yield from _queues(kernels, kernel_links)
    yield from _copies(kernels)


def recorded_series(counters: pa.Table) -> Iterator[CounterSeries]:
    """Yield counters that the recording itself holds, as they are called there."""
    kept = counters.filter(valid(counters["value"]) & valid(counters["time_ns"]))
    codes = [codes_of(kept[column]) for column in ("process", "name", "series")]
    groups = Groups.by_keys([code.astype(np.int64) for code, _ in codes])
    time = numbers(kept["time_ns"])
    value = numbers(kept["value"])
    several = len(np.unique(groups.keys[:, 0])) > 1
    for number, key in enumerate(groups.keys.tolist()):  # some counters
        process, name, series = (
            str(texts[code].as_py()) if code >= 0 else ""
            for code, (_, texts) in zip(key, codes, strict=True)
        )
        words = [process if several else "", name, "" if series == name else series]
        own = groups.group_ids == number
        family = f"{process}: {name}" if several and process else name
        yield CounterSeries(
            family, ", ".join(filter(None, words)), "", *_last(time[own], value[own])
        )


def _memory(memory: pa.Table) -> Iterator[CounterSeries]:
    on_gpu = numbers(memory["device_type"]) > 0  # CUDA 1, HIP 6, XPU 12, …
    device = numbers(memory["device"], -1)
    devices = np.unique(device[on_gpu]).tolist()
    for column, word in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        recorded = on_gpu & valid(memory[column])
        for number in devices:  # a few GPUs
            own = recorded & (device == number)
            if own.any():
                where = f", GPU {number}" if len(devices) > 1 else ""
                points = _last(numbers(memory["time_ns"])[own], numbers(memory[column])[own])
                yield CounterSeries("memory", f"memory {word}{where}", "bytes", *points)


def _queues(kernels: pa.Table, kernel_links: pa.Table) -> Iterator[CounterSeries]:
    waiting = Waiting.of(kernels, kernel_links, per_stream=True)
    groups = Groups.by_keys(waiting.key)
    lengths = QueueLengths.of(waiting, groups)
    devices = len(np.unique(groups.keys[:, 2]))
    for number, (_, _, device, stream) in enumerate(groups.keys.tolist()):  # some streams
        own = lengths.queue == number
        where = f"GPU {device} " if devices > 1 else ""
        points = _last(lengths.time[own], lengths.length[own])
        yield CounterSeries("queue length", f"queue length, {where}stream {stream}", "", *points)


def _copies(kernels: pa.Table) -> Iterator[CounterSeries]:
    """Yield the bandwidth of copies and sets, by what they are: what runs at once is added up."""
    start, end = read_times(kernels)
    moving = (end > start) & valid(kernels["bandwidth_gbps"])
    moving &= matching(kernels["activity"], lambda activity: activity != "kernel")
    codes, names = codes_of(kernels["name"])
    rate = numbers(kernels["bandwidth_gbps"])
    for code in np.unique(codes[moving]).tolist():  # a few kinds of copies
        own = moving & (codes == code)
        time = np.concatenate([start[own], end[own]])
        order = ordered(time)
        change = np.concatenate([rate[own], -rate[own]])[order]
        total: Floats = np.cumsum(change).astype(np.float64).round(6)
        points = _last(time[order], total)
        yield CounterSeries("copies", str(names[code].as_py()), "GB/s", *points)


def _last(time: Ints, value: Ints | Floats) -> tuple[Ints, Ints | Floats]:
    """Return distinct times in order, and the last value of each."""
    order = ordered(time)
    time = time[order]
    value = value[order]
    last = np.append(time[1:] != time[:-1], True)[: len(time)]
    return time[last], value[last]
