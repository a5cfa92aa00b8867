"""Addresses as a caching allocator hands them out: a freed block is the next one of its size."""

from collections import defaultdict

_BEGIN = 0x7F0000000000
_SEGMENT = 2 << 20


class Allocator:
    def __init__(self, held: int, cached: int = 0) -> None:
        """`held`: what was allocated before, and stays; `cached`: the least that is reserved."""
        self.allocated = held
        self._cached = cached
        self._next = _BEGIN + _round_to_segments(held)
        self._taken: defaultdict[int, list[int]] = defaultdict(list)  # by size
        self._free: defaultdict[int, list[int]] = defaultdict(list)

    @property
    def reserved(self) -> int:
        return max(self._next - _BEGIN, self._cached)

    def move(self, size: int) -> int:
        """Allocate, or free the youngest block of that size where negative; its address."""
        self.allocated += size
        taken = self._taken[abs(size)]
        free = self._free[abs(size)]
        if size < 0:
            free.append(taken.pop() if taken else self._add_segment(-size))
            return free[-1]
        taken.append(free.pop() if free else self._add_segment(size))
        return taken[-1]

    def _add_segment(self, size: int) -> int:
        address = self._next
        self._next += _round_to_segments(size)
        return address


def _round_to_segments(size: int) -> int:
    return -(-size // _SEGMENT) * _SEGMENT
