"""Replay of recorded allocations through a model of the allocator, as they were and changed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_texts, codes_of, mark_valid
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank
from htk.base.errors import UsageError
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.physics.allocator_replay import Before, replay_allocations
from htk.physics.caching_allocator import OWN_SEGMENT, SMALL, round_size, segment_size
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.memory_categories import Categories
from htk.quantities.measures.memory_lifetimes import (
    MemoryEvents,
    offload_activations,
    recompute_activations,
)
from htk.quantities.measures.memory_use import MemoryUse, count_failures

_GPUS = (1, 6)  # CUDA, HIP
_MOST_BYTES = 1 << 50
_MOST_FACTOR = 1e6
_PIECE = 2 << 20  # of what the GPU gives: where segments begin and end

RETURNS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Recording of the rank."),
    device=(INT32, "Index of the device."),
    case=(
        TEXT,
        "recorded; replayed: the same through the model; changed: with factors and lifetimes; a "
        "way to fit; … warm: beginning with the segments in which the recorded blocks lie.",
    ),
    peak_bytes=(INT64, "Most that was allocated."),
    reserved_bytes_max=(INT64, "Most that was reserved at any time."),
    unused_pct=(FLOAT64, "Share of it that was not allocated when most was reserved."),
    segments=(INT64, "Pieces that the GPU gave, at the end; null: not recorded."),
    retries=(INT64, "Times that all cached pieces were given back for want of memory."),
    failed=(INT64, "Allocations that failed for want of memory."),
    blocks=(INT64, "Allocations; those before the recording that are seen freed included."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("case", "reserved_bytes_max"),
    needs=("memory",),
    spread=ByRank(totals=("events", "activations", "allocated_before_bytes")),
)
def memory_replay(
    memory: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
    *,
    activations_by: Annotated[
        float, "Factor on activations, inputs and temporaries, e.g. 2 for twice the batch."
    ] = 1.0,
    gradients_by: Annotated[float, "Factor on gradients, e.g. 0.01 for LoRA."] = 1.0,
    optimizer_by: Annotated[float, "Factor on optimizer state, e.g. 0.25 for 8 bits."] = 1.0,
    capacity_gib: Annotated[
        float | None, "Memory of the GPU, in GiB; by default unlimited."
    ] = None,
    max_split_mib: Annotated[
        int | None, "Like max_split_size_mb of PyTorch's allocator, in MiB."
    ] = None,
    recomputed_segments: Annotated[
        int | None, "Segments, such as layers, whose activations are recomputed, e.g. 32."
    ] = None,
    offloaded_segments: Annotated[
        int | None, "Segments whose activations are kept on the host until their backward pass."
    ] = None,
    ways: Annotated[bool, "Try ways to fit into the capacity, the cheapest first."] = False,
) -> pa.Table:
    """What does the allocator reserve for these allocations, and if they were larger or smaller?

    Each recorded allocation and release goes through a model of PyTorch's caching allocator:
    rounding, pools, best fit, splitting, joining. The model begins with what was allocated before
    the recording: what is freed later, and the rest as one block. It does so once without anything
    cached, and once warm, in the segments that the addresses of the recorded blocks show. The
    factors change sizes, not the order; segments change how long activations live. The ways are an
    optimizer of 8 bits, recomputation, offloading and half the batch: the first without a failed
    allocation is the cheapest that fits.
    """
    factors = {
        "activation": activations_by,
        "input": activations_by,
        "temporary": activations_by,
        "gradient": gradients_by,
        "optimizer_state": optimizer_by,
    }
    if not all(0 <= factor <= _MOST_FACTOR for factor in factors.values()):
        raise UsageError(f"factors must lie between 0 and {_MOST_FACTOR:g}")
    if capacity_gib is not None and not 0 < capacity_gib < _MOST_BYTES / 2**30:
        raise UsageError("capacity_gib must be a positive number of GiB")
    lives = _Lifetimes.asked(recomputed_segments, offloaded_segments)
    if ways and capacity_gib is None:
        raise UsageError("ways needs the memory of the GPU: give capacity_gib too")
    use = MemoryUse.from_memory(memory)
    if not len(use.devices):
        return RETURNS.empty_table()
    categories = Categories.from_use(use, cpu_ops, op_links, op_passes, annotations)
    scale = np.array([factors.get(name, 1.0) for name in categories.names])[categories.code]
    capacity = None if capacity_gib is None else int(capacity_gib * 2**30)
    split = None if max_split_mib is None else max_split_mib << 20
    lost = count_failures(memory, use)
    rows: list[tuple[object, ...]] = []
    activations = allocated_before = 0
    for device, (rank, cycle, kind, index) in enumerate(use.devices.keys.tolist()):  # a few
        if kind not in _GPUS:
            continue
        events = _Events.from_use(use, device)
        who = (rank, cycle, index)
        rows.append((*who, "recorded", *_read_recorded_figures(use, device, int(lost[device]))))
        names = np.array(categories.names, object)[categories.code[events.row]]
        allocated_before += events.before
        activations += int(((names == "activation") & (events.size > 0)).sum())
        cases = {"replayed": _Case(np.ones(len(events.size)))}
        asked = _Case(scale[events.row], lives)
        if any(factor != 1 for factor in factors.values()) or lives.segments:
            cases["changed"] = asked
        if ways:
            cases |= _list_cases(asked, names)
        for name, case in cases.items():
            edited = case.events(events, names == "activation")
            for suffix, segments in (("", None), (" warm", events.segments)):
                if suffix and segments is None:
                    continue
                figures = _replay_figures(
                    events, edited, case.sizes(events), capacity, split, segments
                )
                rows.append((*who, f"{name}{suffix}", *figures))
    if not rows:
        return RETURNS.empty_table()
    columns = list(zip(*rows, strict=True))
    arrays = [
        build_texts(list(column)) if field.type == TEXT else pa.array(column, field.type)
        for column, field in zip(columns, RETURNS, strict=True)
    ]
    facts: dict[str, object] = {"categories_inferred": categories.inferred}
    facts["allocated_before_bytes"] = allocated_before  # with which the model begins
    if ways or lives.segments:
        facts["activations"] = activations  # with none, other lifetimes change nothing
    return with_coverage(pa.table(arrays, schema=RETURNS), events=use.table.num_rows, **facts)


_MOST_SEGMENTS = 10_000
_USUAL_SEGMENTS = 32  # layers of a model of some billion parameters


@dataclass(frozen=True)
class _Lifetimes:
    """Lifetimes of activations: as recorded, or given up by so many segments."""

    edit: Callable[[MemoryEvents, Mask, int], MemoryEvents] = recompute_activations
    segments: int = 0  # 0: as recorded

    @classmethod
    def asked(cls, again: int | None, on_host: int | None) -> "_Lifetimes":
        if again is not None and on_host is not None:
            raise UsageError("give recomputed_segments or offloaded_segments, not both")
        count = again if again is not None else on_host
        if count is None:
            return cls()
        if not 1 <= count <= _MOST_SEGMENTS:
            raise UsageError(f"segments must lie between 1 and {_MOST_SEGMENTS:,}")
        return cls(recompute_activations if on_host is None else offload_activations, count)


@dataclass(frozen=True)
class _Case:
    """A case to replay: other sizes, and other lifetimes of activations."""

    scale: Floats
    lives: _Lifetimes = _Lifetimes()

    def sizes(self, events: "_Events") -> Ints:
        return np.minimum(np.abs(events.size) * self.scale, _MOST_BYTES).astype(np.int64)

    def events(self, events: "_Events", activation: Mask) -> MemoryEvents:
        sized = MemoryEvents(events.block, np.sign(events.size) * self.sizes(events))
        if not self.lives.segments:
            return sized
        return self.lives.edit(sized, activation, self.lives.segments)


def _list_cases(asked: _Case, names: NDArray[np.object_]) -> dict[str, _Case]:
    """Return ways to take less, by what they cost: little, a third of the forward pass, the links
    to the host, half of the samples."""
    eighth = np.where(names == "optimizer_state", 0.5, 1.0)
    grown = np.isin(names, ["activation", "input", "temporary"])
    count = asked.lives.segments or _USUAL_SEGMENTS
    return {
        "as asked": asked,
        "8-bit optimizer": replace(asked, scale=asked.scale * eighth),
        "recomputed": replace(asked, lives=_Lifetimes(recompute_activations, count)),
        "offloaded": replace(asked, lives=_Lifetimes(offload_activations, count)),
        "half the batch": replace(asked, scale=asked.scale * np.where(grown, 0.5, 1.0)),
    }


Segments = list[tuple[int, int, bool]]  # address, bytes, whether of the small pool


@dataclass(frozen=True)
class _Events:
    """Allocations and releases of a device, in order; blocks as numbers from 0."""

    row: Ints  # of the table of events
    block: Ints
    size: Ints
    before: int  # bytes allocated before the first
    addresses: Ints | None  # of each block; None: not recorded as numbers

    @classmethod
    def from_use(cls, use: MemoryUse, device: int) -> "_Events":
        chosen: Mask = (use.devices.group_ids == device) & (use.size != 0)
        first = np.flatnonzero(use.devices.group_ids == device)[0]
        has_address = mark_valid(use.table["address"])
        # A snapshot begins with all that was there, which lies at no address.
        own = int(use.size[first]) if has_address[first] else 0
        before = int(use.allocated[first]) - own
        row = np.flatnonzero(chosen & has_address)
        code, names = codes_of(use.table["address"])
        try:
            addresses = np.array([int(str(name), 0) for name in names.to_pylist()], np.int64)
        except (ValueError, OverflowError):
            addresses = None
        return cls(row, code[row].astype(np.int64), use.size[row], max(before, 0), addresses)

    @cached_property
    def segments(self) -> Segments | None:
        """The segments that the recorded blocks lie in (None: no addresses): pieces as the GPU
        gives them, joined where one block spans several."""
        if self.addresses is None:
            return None
        size = np.abs(self.size)
        start = self.addresses[self.block]
        segments: Segments = []
        for is_small in (True, False):
            chosen = (size <= SMALL) == is_small
            if chosen.any():
                segments += [(*s, is_small) for s in _list_segments(start[chosen], size[chosen])]
        return segments


def _list_segments(start: Ints, size: Ints) -> list[tuple[int, int]]:
    """Return address and bytes of the segments of one pool.

    One that holds requests below 10 MiB alone is of 20 MiB, of which all may not have been seen.
    """
    low = start // _PIECE * _PIECE
    high = -(-(start + size) // _PIECE) * _PIECE
    order = order_by(low)
    low = low[order]
    reach = np.maximum.accumulate(high[order])
    size = size[order]
    begins = np.flatnonzero(np.append(True, low[1:] >= reach[:-1]))
    largest = np.maximum.reduceat(size, begins).tolist()
    ends = np.append(begins[1:], len(low)) - 1
    segments: list[tuple[int, int]] = []
    covered = 0
    for first, last, most in zip(low[begins].tolist(), reach[ends].tolist(), largest, strict=True):
        if first < covered:  # some dozens; of a segment that is open already
            continue
        length = max(last - first, segment_size(round_size(most)))
        covered = first + length if most < OWN_SEGMENT else 0
        segments.append((first, length))
    return segments


Figures = tuple[int, int, float | None, int | None, int | None, int, int]


def _read_recorded_figures(use: MemoryUse, device: int, failed: int) -> Figures:
    here = np.flatnonzero(use.devices.group_ids == device)
    allocated = use.allocated[here]
    reserved = use.reserved[here]
    blocks = int(((use.size > 0) & mark_valid(use.table["address"]))[here].sum())
    most = int(reserved.max())
    if most <= 0:
        return int(allocated.max()), 0, None, None, None, failed, blocks
    most_reserved = np.flatnonzero(reserved == most)
    unused = build_percent(np.array([most - allocated[most_reserved].max()]), np.array([most]))
    share = unused[0].as_py()
    return int(allocated.max()), most, share, None, None, failed, blocks


def _replay_figures(
    events: _Events,
    edited: MemoryEvents,
    size: Ints,
    capacity: int | None,
    split: int | None,
    segments: Segments | None,
) -> Figures:
    """Return the figures of a replay; `size`: of each recorded event, with the factors."""
    before = _describe_start(events, size, segments)
    figures = replay_allocations(before, edited.block, edited.size, capacity, split)
    most = figures.peak_reserved
    unused = 100 * (most - figures.allocated_at_peak) / most if most else None
    return (
        figures.peak_allocated, most, unused, figures.segments, figures.retries, figures.failed,
        figures.blocks,
    )  # fmt: skip


def _describe_start(events: _Events, size: Ints, segments: Segments | None) -> Before:
    """Return what was there before: what is freed later, and the rest as one block."""
    keys, first = np.unique(events.block, return_index=True)
    was_there = events.size[first] < 0
    keys = keys[was_there]
    first = first[was_there]
    recorded = -events.size[first]
    amount = size[first]
    rest = max(events.before - int(recorded.sum()), 0)
    address = np.zeros(len(keys), np.int64)
    if segments is not None and events.addresses is not None:
        address = events.addresses[keys]
    lies_there = (amount == recorded) & (segments is not None)
    return Before(
        rest,
        np.array(segments or [], np.int64).reshape(-1, 3),
        np.column_stack([keys, amount, address, lies_there]),
    )
