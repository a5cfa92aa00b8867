"""The caching allocator: worked by hand from its published rules, and against a slow twin."""

import random

import pytest

from htk.physics.caching_allocator import CachingAllocator, OutOfGpuMemory, round_size, segment_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "rounded", "segment"),
    [
        (1, 512, 2 * MIB), (512, 512, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB), (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB), (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (33 * MIB, 33 * MIB, 34 * MIB),
    ],
)  # fmt: skip
def test_requests_are_rounded_and_segments_chosen(size: int, rounded: int, segment: int) -> None:
    assert round_size(size) == rounded
    assert segment_size(rounded) == segment


def test_a_sequence_worked_by_hand() -> None:
    """a: 6 MiB of a segment of 20, which leaves 14. b: 12 MiB of those, which leaves 2; c: 1.5 MiB
    takes all 2, as half a MiB is not split off. d, of 30 MiB, has a segment of its own."""
    memory = CachingAllocator()
    memory.malloc("a", 6 * MIB)
    assert (memory.allocated, memory.reserved, memory.segments) == (6 * MIB, 20 * MIB, 1)
    memory.malloc("b", 12 * MIB)
    memory.malloc("c", 3 * MIB // 2)
    assert memory.reserved == 20 * MIB and memory.block_size("c") == 2 * MIB
    assert memory.allocated == 20 * MIB
    memory.malloc("d", 30 * MIB)
    assert (memory.reserved, memory.segments) == (50 * MIB, 2)
    memory.free("a")
    memory.free("c")
    memory.malloc("e", 7 * MIB)  # 6 and 2 MiB are free, apart: a third segment
    assert (memory.reserved, memory.segments) == (70 * MIB, 3)
    memory.free("b")  # joins both into the 20 of the first
    memory.malloc("f", 20 * MIB)
    assert (memory.reserved, memory.segments) == (70 * MIB, 3)
    assert memory.allocated == 57 * MIB
    assert memory.peak_reserved == 70 * MIB and memory.peak_allocated == 57 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    """Free: 30, 12 and 20 MiB. A request of 11 takes the 12, which is not split."""
    memory = CachingAllocator()
    for key, size in (("x", 30), ("y", 12), ("z", 20)):
        memory.malloc(key, size * MIB)
    for key in "xyz":
        memory.free(key)
    memory.malloc("k", 11 * MIB)
    assert memory.block_size("k") == 12 * MIB
    memory.malloc("l", 18 * MIB)  # of the 20, with 2 left over
    assert memory.block_size("l") == 18 * MIB
    memory.malloc("m", 2 * MIB)
    assert memory.reserved == 62 * MIB


def test_small_and_large_requests_share_nothing() -> None:
    memory = CachingAllocator()
    memory.malloc("large", 20 * MIB)
    memory.free("large")
    memory.malloc("small", 100)
    assert memory.reserved == 22 * MIB
    memory.malloc("other", 2 * MIB - 512)  # large: of the 20
    assert memory.reserved == 22 * MIB and memory.block_size("small") == 512


def test_what_is_wholly_free_is_given_back_where_memory_ends() -> None:
    memory = CachingAllocator(capacity=50 * MIB)
    for key in "abc":
        memory.malloc(key, 16 * MIB)
    memory.free("a")
    memory.free("c")
    memory.malloc("d", 20 * MIB)  # 48 are reserved: two segments of 16 go
    assert (memory.reserved, memory.retries, memory.segments) == (36 * MIB, 1, 2)
    with pytest.raises(OutOfGpuMemory):
        memory.malloc("e", 30 * MIB)
    memory.malloc("f", 14 * MIB)
    assert memory.reserved == 50 * MIB


def test_blocks_beyond_the_largest_split_are_kept_whole() -> None:
    """max_split_size of 100 MiB: 120 freed is not cut for 30; 110 takes it, and keeps all of it."""
    memory = CachingAllocator(max_split=100 * MIB)
    memory.malloc("a", 120 * MIB)
    memory.free("a")
    memory.malloc("b", 30 * MIB)
    assert memory.reserved == 150 * MIB
    memory.malloc("c", 110 * MIB)
    assert memory.reserved == 150 * MIB and memory.block_size("c") == 120 * MIB
    memory.free("c")
    memory.malloc("d", 100 * MIB)  # 120 is 20 more: too much to lose
    assert memory.reserved == 250 * MIB


def test_segments_and_blocks_lie_where_they_are_put() -> None:
    """Of 40 MiB from 100 on, 10 from 112 are taken: 12 are free before, 18 behind."""
    memory = CachingAllocator()
    memory.add_segment(100 * MIB, 40 * MIB, False)
    assert memory.place("a", 112 * MIB, 10 * MIB)
    assert not memory.place("b", 120 * MIB, 10 * MIB)
    memory.begin()
    assert (memory.peak_allocated, memory.peak_reserved) == (10 * MIB, 40 * MIB)
    memory.malloc("c", 15 * MIB)
    memory.malloc("d", 12 * MIB)
    assert memory.address_of("c") == 122 * MIB and memory.address_of("d") == 100 * MIB
    for key in "acd":
        memory.free(key)
    memory.malloc("e", 40 * MIB)
    assert memory.address_of("e") == 100 * MIB and memory.reserved == 40 * MIB


def test_segments_do_not_touch_those_that_were_there() -> None:
    memory = CachingAllocator()
    memory.add_segment(100 * MIB, 40 * MIB, False)
    memory.malloc("a", 60 * MIB)
    assert memory.address_of("a") > 140 * MIB
    assert (memory.reserved, memory.segments) == (100 * MIB, 2)
    memory.free("a")
    memory.malloc("b", 80 * MIB)
    assert memory.reserved == 180 * MIB, "40 and 60 MiB side by side are no block of 100"


@pytest.mark.parametrize(("first", "second"), [(100, 110), (115, 100), (130, 105), (100, 130)])
def test_blocks_that_are_put_at_the_ends_of_a_segment(first: int, second: int) -> None:
    """Each of 10 of the 40 MiB from 100 on; whatever is left joins when both are free again."""
    memory = CachingAllocator()
    memory.add_segment(100 * MIB, 40 * MIB, False)
    assert not memory.place("x", 131 * MIB, 10 * MIB) and not memory.place("x", 99 * MIB, MIB)
    assert memory.place("a", first * MIB, 10 * MIB) and memory.place("b", second * MIB, 10 * MIB)
    assert (memory.address_of("a"), memory.address_of("b")) == (first * MIB, second * MIB)
    assert memory.allocated == 20 * MIB and len(memory) == 2
    memory.free("a")
    memory.free("b")
    assert memory.place("whole", 100 * MIB, 40 * MIB), "a block may fill a segment"
    assert memory.allocated == 40 * MIB


@pytest.mark.parametrize("freed", ["a", "b"])
def test_a_segment_of_which_a_part_is_used_is_not_given_back(freed: str) -> None:
    memory = CachingAllocator(capacity=40 * MIB)
    memory.malloc("a", 9 * MIB)
    memory.malloc("b", 11 * MIB)
    memory.free(freed)
    with pytest.raises(OutOfGpuMemory):
        memory.malloc("c", 21 * MIB)
    assert (memory.reserved, memory.retries) == (20 * MIB, 1)
    memory.begin()
    assert memory.retries == 0
    memory.free("a" if freed == "b" else "b")
    memory.malloc("c", 40 * MIB)
    assert (memory.reserved, memory.segments) == (40 * MIB, 1), "all of the capacity"


def test_a_block_as_large_as_the_largest_split_is_not_split() -> None:
    """max_split_size of 100 MiB: for 100 the 110 that are free, and all of them."""
    memory = CachingAllocator(max_split=100 * MIB)
    memory.malloc("a", 110 * MIB)
    memory.free("a")
    memory.malloc("b", 100 * MIB)
    assert (memory.reserved, memory.block_size("b")) == (110 * MIB, 110 * MIB)
    memory.malloc("c", 100 * MIB)
    memory.free("c")
    memory.malloc("d", 99 * MIB)
    assert memory.reserved == 110 * MIB + 100 * MIB + 100 * MIB, "100 are kept for large requests"


class _Twin:
    """The same rules on a list of bytes' owners: segments as lists of (size, key or None)."""

    def __init__(self) -> None:
        self.segments: list[tuple[bool, list[list[object]]]] = []

    def malloc(self, key: object, size: int) -> None:
        rounded = max(512, (size + 511) // 512 * 512)
        small = rounded <= MIB
        fits = [
            (block[0], s, b)
            for s, (pool, blocks) in enumerate(self.segments)
            for b, block in enumerate(blocks)
            if pool == small and block[1] is None and block[0] >= rounded  # type: ignore[operator]
        ]
        if not fits:
            self.segments.append((small, [[segment_size(rounded), None]]))
            fits = [(segment_size(rounded), len(self.segments) - 1, 0)]
        whole, s, b = min(fits)
        rest = whole - rounded  # type: ignore[operator]
        blocks = self.segments[s][1]
        if rest >= 512 if small else rest > MIB:
            blocks[b : b + 1] = [[rounded, key], [rest, None]]
        else:
            blocks[b] = [whole, key]

    def free(self, key: object) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                if block[1] == key:
                    block[1] = None
            merged: list[list[object]] = []
            for block in blocks:
                if merged and merged[-1][1] is None and block[1] is None:
                    merged[-1][0] += block[0]  # type: ignore[operator]
                else:
                    merged.append(block)
            blocks[:] = merged

    @property
    def reserved(self) -> int:
        return sum(block[0] for _, blocks in self.segments for block in blocks)  # type: ignore[misc]

    @property
    def allocated(self) -> int:
        held = (b for _, blocks in self.segments for b in blocks if b[1] is not None)
        return sum(block[0] for block in held)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(6))
def test_it_does_what_a_slow_twin_does(seed: int) -> None:
    dice = random.Random(seed)
    memory, twin, alive = CachingAllocator(), _Twin(), []
    seen = [(0, 0)]  # reserved and allocated
    for number in range(700):
        if number == 300:
            memory.begin()
            seen = seen[-1:]
        if alive and dice.random() < 0.47:
            key = alive.pop(dice.randrange(len(alive)))
            memory.free(key)
            twin.free(key)
        else:
            size = int(10 ** dice.uniform(1, 7.7))
            if dice.random() < 0.3:  # where rules change
                size = dice.choice((512, MIB, 2 * MIB, 10 * MIB, 20 * MIB)) + dice.choice((0, 512))
            memory.malloc(number, size)
            twin.malloc(number, size)
            alive.append(number)
        seen.append((twin.reserved, twin.allocated))
        assert (memory.reserved, memory.allocated) == seen[-1]
        assert (memory.peak_reserved, memory.allocated_at_peak) == max(seen)
        assert memory.peak_allocated == max(allocated for _, allocated in seen)
        assert (len(memory), memory.segments) == (len(alive), len(twin.segments))
        assert all(memory.holds(key) for key in alive) and not memory.holds(-1)
