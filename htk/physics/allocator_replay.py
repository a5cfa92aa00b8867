"""Recorded allocations and releases, one after the other, through the caching allocator."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Ints
from htk.physics.caching_allocator import CachingAllocator, OutOfGpuMemory

_REST = -1  # a key beside those of blocks
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Before:
    """Blocks and segments that the allocator holds before the first event."""

    rest: int  # bytes that no event frees, as one block
    segments: Ints  # a row each: address, bytes, whether of the small pool
    blocks: Ints  # that events free: key, bytes, address, whether it lies there


class AllocatorFigures(NamedTuple):
    """The result of a replay; peaks and retries since the first event."""

    peak_allocated: int
    peak_reserved: int
    allocated_at_peak: int  # most, when most was reserved
    segments: int  # at the end
    retries: int
    failed: int  # allocations, those before included
    blocks: int  # asked for, and those that were there


def replay_allocations(
    before: Before, keys: Ints, sizes: Ints, capacity: int | None, max_split: int | None
) -> AllocatorFigures:
    """Replay events: bytes above 0 allocate a block of that key, and each frees the one before.

    `keys`: from 0. A release of what is not there is of no account: its allocation failed.
    """
    try:
        from htk.base.native._allocator import replay as compiled
    except ImportError:
        return replay_pure(before, keys, sizes, capacity, max_split)
    named = [part for part in (keys, before.blocks[:, 0]) if len(part)]
    count = max((int(part.max()) + 1 for part in named), default=0)
    segments = np.ascontiguousarray(before.segments, np.int64)
    blocks = np.ascontiguousarray(before.blocks, np.int64)
    keys_ = np.ascontiguousarray(keys, np.int64)
    sizes_ = np.ascontiguousarray(sizes, np.int64)
    most = -1 if capacity is None else min(capacity, _MOST)
    split = -1 if max_split is None else min(max_split, _MOST)
    try:
        return AllocatorFigures(
            *compiled(before.rest, segments, blocks, keys_, sizes_, count, most, split)
        )
    except OverflowError:  # integers of Python have no end
        return replay_pure(before, keys, sizes, capacity, max_split)


def replay_pure(
    before: Before, keys: Ints, sizes: Ints, capacity: int | None, max_split: int | None
) -> AllocatorFigures:
    """Replay in Python. A loop: each block depends on all that came before."""
    allocator = CachingAllocator(capacity, max_split)
    failed = _allocate_start(allocator, before)
    blocks = len(allocator)
    allocator.begin()
    for key, size in zip(keys.tolist(), sizes.tolist(), strict=True):
        if allocator.holds(key):
            allocator.free(key)  # where it is new, its release was not recorded
        if size > 0:
            blocks += 1
            failed += not _is_allocated(allocator, key, size)
    return AllocatorFigures(
        allocator.peak_allocated, allocator.peak_reserved, allocator.allocated_at_peak,
        allocator.segments, allocator.retries, failed, blocks,
    )  # fmt: skip


def _allocate_start(allocator: CachingAllocator, before: Before) -> int:
    """Put what was there before; return how much of it there was no memory for."""
    failed = 0
    if before.rest > 0:
        failed += not _is_allocated(allocator, _REST, before.rest)
    for address, length, is_small in before.segments.tolist():
        allocator.add_segment(address, length, bool(is_small))
    for key, size, address, lies_there in before.blocks.tolist():
        if size > 0 and not (lies_there and allocator.place(key, address, size)):
            failed += not _is_allocated(allocator, key, size)
    return failed


def _is_allocated(allocator: CachingAllocator, key: int, size: int) -> bool:
    """Allocate a block; return whether there was memory for it."""
    try:
        allocator.malloc(key, size)
    except OutOfGpuMemory:
        return False
    return True
