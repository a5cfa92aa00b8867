"""PyTorch's caching allocator of GPU memory, as its source has it, without expandable segments.

Requests are rounded to 512 bytes. Those of up to 1 MiB come from a pool of segments of 2 MiB,
larger ones from another: of 20 MiB below a request of 10 MiB, else of the request rounded to 2 MiB.
The smallest free block that holds a request is taken, and split where more than 1 MiB is left over
(of small ones 512 bytes). A block that is freed joins its free neighbours; segments are given back
only where the GPU has no more memory, and then all that are wholly free. By round_size,
get_allocation_size, get_free_block, should_split and release_cached_blocks of
c10/cuda/CUDACachingAllocator; of one stream.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass

_KIB = 1 << 10
_MIB = 1 << 20
LEAST = 512
SMALL = 1 * _MIB  # and less: of the small pool
_SMALL_SEGMENT = 2 * _MIB
_LARGE_SEGMENT = 20 * _MIB
OWN_SEGMENT = 10 * _MIB  # and more: a segment of its own size
_ROUNDED = 2 * _MIB


def round_size(size: int) -> int:
    """Return the bytes of a block for a request."""
    return max(LEAST, -(-size // LEAST) * LEAST)


def segment_size(rounded: int) -> int:
    """Return the bytes that are asked of the GPU where no cached block fits."""
    if rounded <= SMALL:
        return _SMALL_SEGMENT
    if rounded < OWN_SEGMENT:
        return _LARGE_SEGMENT
    return -(-rounded // _ROUNDED) * _ROUNDED


@dataclass(eq=False, slots=True)
class _Block:
    address: int
    size: int
    is_small: bool
    number: int  # of this block among all that were ever made
    is_free: bool = True
    before: "_Block | None" = None
    after: "_Block | None" = None


_Free = tuple[int, int, int, _Block]  # a block behind what orders it: size, address, number


class OutOfGpuMemory(Exception):
    """No block, and no segment, though all cached ones were given back."""


class CachingAllocator:
    """Blocks by the key that the caller gives them; sizes in bytes."""

    def __init__(self, capacity: int | None = None, max_split: int | None = None) -> None:
        """`max_split`: larger blocks are not split (max_split_size_mb); None: all are."""
        self.capacity = capacity
        self.max_split = max_split
        self.allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self.allocated_at_peak = 0  # when most was reserved
        self.segments = self.retries = 0
        self._blocks: dict[Hashable, _Block] = {}
        self._free: tuple[list[_Free], list[_Free]] = ([], [])  # of the large and the small pool
        self._next = self._made = 0

    def malloc(self, key: Hashable, size: int) -> None:
        """Allocate a block; raise OutOfGpuMemory where the capacity does not suffice."""
        rounded = round_size(size)
        block = self._find_cached(rounded) or self._new_segment(rounded)
        self._split(block, rounded)
        block.is_free = False
        self._blocks[key] = block
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        if self.reserved > self.peak_reserved:
            self.peak_reserved, self.allocated_at_peak = self.reserved, self.allocated
        elif self.reserved == self.peak_reserved:
            self.allocated_at_peak = max(self.allocated_at_peak, self.allocated)

    def free(self, key: Hashable) -> None:
        """Free a block, and join it with its neighbours."""
        block = self._blocks.pop(key)
        self.allocated -= block.size
        block.is_free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.is_free:
                self._take(neighbour)
                block = _join_blocks(block, neighbour)
        self._keep(block)

    def add_segment(self, address: int, size: int, is_small: bool) -> None:
        """Begin with a segment that is wholly free, where the GPU put it."""
        self._keep(self._build_block(address, size, is_small))
        self.reserved += size
        self.segments += 1
        self._next = max(self._next, address + size + _ROUNDED)

    def place(self, key: Hashable, address: int, size: int) -> bool:
        """Allocate a block at an address; return whether a free one holds it."""
        for free in self._free:
            for length, start, _, block in free:
                if start <= address and address + size <= start + length:
                    self._take(block)
                    if address > start:
                        front = block
                        block = self._cut(block, address - start)
                        self._keep(front)
                    if block.size > size:
                        self._keep(self._cut(block, size))
                    block.is_free = False
                    self._blocks[key] = block
                    self.allocated += size
                    return True
        return False

    def begin(self) -> None:
        """Count peaks, segments and retries from here on."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved
        self.allocated_at_peak = self.allocated
        self.retries = 0

    def address_of(self, key: Hashable) -> int:
        return self._blocks[key].address

    def __len__(self) -> int:
        """Return how many blocks are allocated."""
        return len(self._blocks)

    def holds(self, key: Hashable) -> bool:
        return key in self._blocks

    def block_size(self, key: Hashable) -> int:
        """Return the bytes of a block, with what was too little to split off."""
        return self._blocks[key].size

    def _build_block(self, address: int, size: int, is_small: bool) -> _Block:
        self._made += 1
        return _Block(address, size, is_small, self._made)

    def _take(self, block: _Block) -> None:
        free = self._free[block.is_small]
        del free[bisect_left(free, (block.size, block.address, block.number))]

    def _find_cached(self, rounded: int) -> _Block | None:
        free = self._free[rounded <= SMALL]
        position = bisect_left(free, (rounded,))
        if position == len(free):
            return None
        size, _, _, block = free[position]
        if self.max_split is not None and rounded > SMALL:
            if rounded < self.max_split <= size:
                return None  # large blocks are kept for large requests
            if rounded >= self.max_split and size >= rounded + _LARGE_SEGMENT:
                return None
        del free[position]
        return block

    def _new_segment(self, rounded: int) -> _Block:
        size = segment_size(rounded)
        if self.capacity is not None and self.reserved + size > self.capacity:
            self._give_back()
            self.retries += 1
            if self.reserved + size > self.capacity:
                raise OutOfGpuMemory(rounded)
        block = self._build_block(self._next, size, rounded <= SMALL)
        self._next += size + _ROUNDED  # segments do not touch
        self.reserved += size
        self.segments += 1
        return block

    def _split(self, block: _Block, rounded: int) -> None:
        rest = block.size - rounded
        if block.is_small:
            splits = rest >= LEAST
        else:
            splits = rest > SMALL and (self.max_split is None or rounded < self.max_split)
        if splits:
            self._keep(self._cut(block, rounded))

    def _cut(self, block: _Block, size: int) -> _Block:
        """Cut a block after so many bytes; return the one behind."""
        behind = self._build_block(block.address + size, block.size - size, block.is_small)
        behind.before = block
        behind.after = block.after
        if block.after is not None:
            block.after.before = behind
        block.after = behind
        block.size = size
        return behind

    def _keep(self, block: _Block) -> None:
        """Put a free block among the free ones."""
        insort(self._free[block.is_small], (block.size, block.address, block.number, block))

    def _give_back(self) -> None:
        """Give back the segments that are wholly free."""
        for free in self._free:
            for size, _, _, block in list(free):
                if block.before is None and block.after is None:
                    self._take(block)
                    self.reserved -= size
                    self.segments -= 1


def _join_blocks(block: _Block, neighbour: _Block) -> _Block:
    first, second = sorted((block, neighbour), key=lambda b: b.address)
    first.size += second.size
    first.after = second.after
    if second.after is not None:
        second.after.before = first
    first.is_free = True
    return first
