"""Counters that the tables of recordings tell: memory, queues of launched work, copies."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, match_texts, read_numbers, read_times
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.quantities.measures.queues import QueueLengths, Waiting


class CounterSeries(NamedTuple):
    """A value that holds from each of its times to the next."""

    family: str  # series of one family are drawn beside each other
    name: str
    unit: str  # bytes, GB/s; none of what is counted
    time: Ints  # distinct, in order
    value: Ints | Floats
    host: int  # the recording that it is of, as `hosts` numbers them


def counter_series(
    kernels: pa.Table, kernel_links: pa.Table, memory: pa.Table
) -> Iterator[CounterSeries]:
    """Yield memory in use and reserved, launches that wait on each stream, the rate of copies; of
    every recording whose rows the tables hold."""
    yield from _build_memory_series(memory)
    yield from _build_queue_series(kernels, kernel_links)
    yield from _build_copy_series(kernels)


def recorded_series(counters: pa.Table) -> Iterator[CounterSeries]:
    """Yield counters that the recordings themselves hold, as they are called there."""
    kept = counters.filter(mark_valid(counters["value"]) & mark_valid(counters["time_ns"]))
    processes, process_names = codes_of(kept["process"])
    names, name_texts = codes_of(kept["name"])
    parts, part_texts = codes_of(kept["series"])
    groups = Groups.by_keys([number_hosts(kept), processes, names, parts])
    several = _with_several(groups.keys[:, :2])
    for (host, *codes), time, value in _split_by_key(
        groups, read_numbers(kept["time_ns"]), read_numbers(kept["value"])
    ):
        process, name, series = (
            str(texts[code].as_py()) if code >= 0 else ""
            for code, texts in zip(codes, (process_names, name_texts, part_texts), strict=True)
        )
        words = [process if host in several else "", name, "" if series == name else series]
        family = f"{process}: {name}" if host in several and process else name
        yield CounterSeries(family, ", ".join(filter(None, words)), "", time, value, host)


def _build_memory_series(memory: pa.Table) -> Iterator[CounterSeries]:
    on_gpu = read_numbers(memory["device_type"]) > 0  # CUDA 1, HIP 6, XPU 12, …
    owner = np.column_stack(
        [number_hosts(memory), read_numbers(memory["device"], -1).astype(np.int64)]
    )
    several = _with_several(owner[on_gpu])
    time = read_numbers(memory["time_ns"])
    for column, word in (("allocated_bytes", "allocated"), ("reserved_bytes", "reserved")):
        rows = np.flatnonzero(on_gpu & mark_valid(memory[column]))
        groups = Groups.by_keys(owner[rows])
        for (host, device), moments, held in _split_by_key(
            groups, time[rows], read_numbers(memory[column])[rows]
        ):
            where = f", GPU {device}" if host in several else ""
            yield CounterSeries("memory", f"memory {word}{where}", "bytes", moments, held, host)


def _build_queue_series(kernels: pa.Table, kernel_links: pa.Table) -> Iterator[CounterSeries]:
    waiting = Waiting.from_kernels(kernels, kernel_links, per_stream=True)
    lengths = QueueLengths.from_waiting(waiting, Groups.by_keys(waiting.key))
    owner = np.column_stack([number_hosts(kernels)[waiting.row], waiting.key[:, 2:]])
    groups = Groups.by_keys(np.concatenate([owner, owner])[lengths.order])
    several = _with_several(owner[:, :2])
    for (host, device, stream), time, length in _split_by_key(groups, lengths.time, lengths.length):
        where = f"GPU {device} " if host in several else ""
        name = f"queue length, {where}stream {stream}"
        yield CounterSeries("queue length", name, "", time, length, host)


def _build_copy_series(kernels: pa.Table) -> Iterator[CounterSeries]:
    """Yield the bandwidth of copies and sets, by what they are: what runs at once is added up."""
    start, end = read_times(kernels)
    moving = (end > start) & mark_valid(kernels["bandwidth_gbps"])
    moving &= match_texts(kernels["activity"], lambda activity: activity != "kernel")
    rows = np.flatnonzero(moving)
    codes, names = codes_of(kernels["name"])
    rate = read_numbers(kernels["bandwidth_gbps"])[rows]
    owner = np.column_stack([number_hosts(kernels)[rows], codes[rows].astype(np.int64)])
    groups = Groups.by_keys(np.concatenate([owner, owner]))
    time = np.concatenate([start[rows], end[rows]])
    order = order_by(groups.group_ids, time)
    # Each sum ends at nothing, so that one runs through all of them.
    total: Floats = np.cumsum(np.concatenate([rate, -rate])[order]).astype(np.float64).round(6)
    in_order = Groups(groups.keys, groups.group_ids[order], groups.first_row)
    for (host, code), moments, moved in _split_by_key(in_order, time[order], total):
        yield CounterSeries("copies", str(names[code].as_py()), "GB/s", moments, moved, host)


def _with_several(owners: Ints) -> set[int]:
    """Return which of the first column have several values in the second."""
    pairs = Groups.by_keys(owners).keys[:, 0]
    owner, count = np.unique(pairs, return_counts=True)
    return set(owner[count > 1].tolist())


def _split_by_key(
    groups: Groups, time: Ints, value: Ints | Floats
) -> Iterator[tuple[list[int], Ints, Ints | Floats]]:
    """Yield the key of each group, its distinct times in order, and the last value of each."""
    order = order_by(groups.group_ids, time)
    group = groups.group_ids[order]
    time = time[order]
    value = value[order]
    last = np.append((time[1:] != time[:-1]) | (group[1:] != group[:-1]), True)[: len(time)]
    group = group[last]
    time = time[last]
    value = value[last]
    cuts = np.searchsorted(group, np.arange(len(groups) + 1)).tolist()
    for key, first, after in zip(groups.keys.tolist(), cuts, cuts[1:], strict=False):
        yield key, time[first:after], value[first:after]
