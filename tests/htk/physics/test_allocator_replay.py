"""Replays through the caching allocator: compiled, in Python, and worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.physics.allocator_replay import AllocatorFigures, Before, replay_allocations, replay_pure
from htk.physics.caching_allocator import CachingAllocator

MIB = 1 << 20
_NONE = Before(0, np.empty((0, 3), np.int64), np.empty((0, 4), np.int64))
_SIZES = np.array([1, 512, 513, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 20 * MIB, 33 * MIB])


def _recording(seed: int) -> tuple[Before, np.ndarray, np.ndarray, int | None, int | None]:
    """Events of few blocks, so that many are freed; a beginning that may hold some of them."""
    dice = np.random.default_rng(seed)
    events, blocks = int(dice.integers(0, 300)), int(dice.integers(1, 60))
    keys = dice.integers(0, blocks, events)
    sizes = np.where(
        dice.random(events) < 0.3, dice.choice(_SIZES, events), dice.integers(1, 1 << 23, events)
    )
    sizes[dice.random(events) < 0.45] *= -1
    there = dice.permutation(blocks)[: dice.integers(0, blocks + 1)]
    segments = [(k * 64 * MIB, int(dice.integers(1, 33)) * MIB, k % 2) for k in range(8)]
    segments += [(k * 64 * MIB, 20 * MIB, 1 - k % 2) for k in range(2)]  # of both pools
    lie = dice.integers(0, 8, len(there)) * 64 * MIB + dice.integers(0, 20, len(there)) * MIB
    before = Before(
        int(dice.choice([0, 700, 50 * MIB])),
        np.array(segments[: dice.integers(0, 11)], np.int64).reshape(-1, 3),
        np.column_stack(
            [there, dice.choice(_SIZES, len(there)), lie, dice.integers(0, 2, len(there))]
        ),
    )
    capacity = [None, 0, 150 * MIB, 400 * MIB, 1 << 70][dice.integers(5)]
    split = [None, 0, 5 * MIB, 20 * MIB][dice.integers(4)]
    return before, keys, sizes, capacity, split


@given(st.integers(0, 1 << 32))
def test_compiled_as_in_python(seed: int) -> None:
    recording = _recording(seed)
    assert replay_allocations(*recording) == replay_pure(*recording)


def test_a_recording_worked_by_hand() -> None:
    """Before: 1 MiB that stays, and block 0 of 4 MiB in a segment of 20. Block 1 has 12 of the 16
    behind it, block 2 the 4 that are left. Block 0 goes, and 2 is freed twice: 8 lie apart. Block
    3, of 5, needs a segment; one of 10 would pass the capacity. 1 comes again without its release.
    """
    before = Before(
        MIB, np.array([[100 * MIB, 20 * MIB, 0]]), np.array([[0, 4 * MIB, 100 * MIB, 1]])
    )
    keys = np.array([1, 2, 0, 2, 2, 3, 1])
    sizes = np.array([12, 4, -4, -4, -4, 5, 21]) * MIB
    most = AllocatorFigures(
        peak_allocated=21 * MIB,
        peak_reserved=42 * MIB,
        allocated_at_peak=18 * MIB,
        segments=2,  # of 2 MiB, and that of block 3: the first was given back
        retries=1,
        failed=1,
        blocks=6,
    )
    for way in (replay_allocations, replay_pure):
        assert way(before, keys, sizes, 42 * MIB, None) == most


def test_segments_of_both_pools_at_one_address() -> None:
    """Addresses are used again: small blocks now, large ones later. Each request finds its own."""
    segments = np.array([[0, 2 * MIB, 1], [0, 20 * MIB, 0]])
    keys, sizes = np.array([0, 1, 0, 0]), np.array([1000, 15 * MIB, -1000, 2000])
    for way in (replay_allocations, replay_pure):
        found = way(Before(0, segments, _NONE.blocks), keys, sizes, None, None)
        assert (found.peak_reserved, found.segments) == (22 * MIB, 2)
        assert found.peak_allocated == 15 * MIB + 2048
    memory = CachingAllocator()
    memory.add_segment(0, 2 * MIB, True)
    memory.add_segment(0, 20 * MIB, False)
    memory.malloc("small", 1000)
    memory.malloc("other", 1000)
    assert memory.reserved == 22 * MIB


def test_sums_beyond_64_bits_are_exact() -> None:
    keys, sizes = np.arange(5), np.full(5, 1 << 61)
    assert replay_allocations(_NONE, keys, sizes, None, None).peak_allocated == 5 << 61
    assert replay_allocations(
        Before(1 << 64, *_parts(_NONE)), keys, sizes, None, None
    ) == replay_pure(Before(1 << 64, *_parts(_NONE)), keys, sizes, None, None)


def _parts(before: Before) -> tuple[np.ndarray, np.ndarray]:
    return before.segments, before.blocks


def test_what_is_no_recording_is_refused() -> None:
    compiled = pytest.importorskip(
        "htk.base.native._allocator", reason="not built with a compiler"
    ).replay
    none, one = np.empty(0, np.int64), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="differ in length"):
        compiled(0, none, none, one, none, 1, -1, -1)
    with pytest.raises(ValueError, match="differ in length"):
        compiled(0, np.zeros(4, np.int64), none, one, one, 1, -1, -1)
    with pytest.raises(ValueError, match="a segment without bytes"):
        compiled(0, np.zeros(3, np.int64), none, one, one, 1, -1, -1)
    with pytest.raises(IndexError, match="without a number"):
        compiled(0, none, none, one + 1, one, 1, -1, -1)
    with pytest.raises(IndexError, match="without a number"):
        compiled(0, none, np.array([-1, 5, 0, 0]), one, one, 1, -1, -1)
