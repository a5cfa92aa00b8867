"""PyTorch's caching allocator by lists, without pools of free blocks in order."""

from bench.truth.expected.sums import Row, percent

_MIB = 1 << 20
Block = list[int]  # address, bytes, whether it is in use


class Allocator:
    """Segments of the small pool and of the large one, each cut into blocks."""

    def __init__(self) -> None:
        self.pools: dict[bool, list[list[Block]]] = {True: [], False: []}
        self.next_address = 0
        self.blocks: dict[int, tuple[list[Block], Block]] = {}

    @property
    def reserved(self) -> int:
        return sum(b[1] for pool in self.pools.values() for segment in pool for b in segment)

    @property
    def allocated(self) -> int:
        return sum(block[1] for _, block in self.blocks.values())

    def allocate(self, key: int, size: int) -> None:
        rounded = max(-(-size // 512) * 512, 512)
        small = rounded <= _MIB
        free = [
            (block[1], block[0], segment, block)
            for segment in self.pools[small]
            for block in segment
            if not block[2] and block[1] >= rounded
        ]
        if free:
            *_, segment, block = min(free, key=lambda fit: fit[:2])
        else:
            block = [self.next_address, self._segment_size(rounded), 0]
            segment = [block]
            self.pools[small].append(segment)
            self.next_address += block[1] + 2 * _MIB
        rest = block[1] - rounded
        if rest >= 512 if small else rest > _MIB:
            segment.insert(segment.index(block) + 1, [block[0] + rounded, rest, 0])
            block[1] = rounded
        block[2] = 1
        self.blocks[key] = segment, block

    @staticmethod
    def _segment_size(rounded: int) -> int:
        if rounded <= _MIB:
            return 2 * _MIB
        return 20 * _MIB if rounded < 10 * _MIB else -(-rounded // (2 * _MIB)) * 2 * _MIB

    def free(self, key: int) -> None:
        """Free a block, and join what is free side by side."""
        segment, freed = self.blocks.pop(key)
        freed[2] = 0
        for k in range(len(segment) - 2, -1, -1):
            block, behind = segment[k], segment[k + 1]
            if not block[2] and not behind[2]:
                block[1] += behind[1]
                del segment[k + 1]


def replayed(before: int, events: list[tuple[int, int]]) -> Row:
    """Return what a replay of events (address, bytes; below zero: freed) needs, beginning with one
    block of what was allocated before."""
    allocator = Allocator()
    if before:
        allocator.allocate(-1, before)
    blocks = len(allocator.blocks) + sum(size > 0 for _, size in events)
    states = [(allocator.reserved, allocator.allocated)]
    for address, size in events:
        if address in allocator.blocks:
            allocator.free(address)
        if size > 0:
            allocator.allocate(address, size)
        states.append((allocator.reserved, allocator.allocated))
    most, held = max(states)
    return {
        **{"peak_bytes": max(allocated for _, allocated in states), "reserved_bytes_max": most},
        "unused_pct": percent(most - held, most),
        **{"segments": sum(map(len, allocator.pools.values())), "blocks": blocks},
        **{"failed": 0, "retries": 0},
    }
