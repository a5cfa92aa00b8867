"""How many blocks of a kernel a multiprocessor holds at once, by the vendors' own rules.

NVIDIA's are those of `cuda_occupancy.h` of CUDA 12.9, AMD's those by which LLVM's AMDGPU back end
counts waves. Warps (waves) are shared out over the parts of a multiprocessor, each with registers
of its own; shared memory is given out by the block.
"""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Ints
from htk.base.mappings import Facts

_PARTS = 4
_FEWER_BLOCKS = {  # by compute capability; 32 otherwise
    **{(3, 0): 16, (3, 2): 16, (3, 5): 16, (3, 7): 16, (7, 5): 16, (8, 6): 16, (8, 7): 16},
    **{(8, 9): 24, (11, 0): 24, (12, 0): 24, (12, 1): 24},
}
_RESERVED_FROM = (8, 0)  # CUDA keeps shared memory of each block for itself
_RESERVED_BYTES = 1024
_REGISTERS_OF_CDNA = {8: (512, 8), 10: (256, 4)}  # by waves of a SIMD: registers, step
_MOST_WORKGROUPS = 16  # of more than one wave: each holds a barrier


@dataclass(frozen=True)
class Multiprocessor:
    """What a multiprocessor (compute unit) holds, and in which steps it is given out."""

    threads: int
    warp: int
    most_blocks: int
    parts: int  # schedulers (SIMDs), which share the registers
    registers: int  # of a part, in those that each thread of a warp has
    register_step: int
    shared_memory: int
    shared_memory_step: int
    reserved: int = 0  # shared memory that each block takes besides its own
    single_waves: bool = False  # blocks of one warp are limited by warps alone

    @classmethod
    def from_properties(cls, properties: Facts) -> "Multiprocessor | None":
        """Return that of a device, by Kineto's deviceProperties; None: not enough is recorded."""

        def read_property(*names: str) -> int:
            values = (properties.get(name) for name in names)
            return next((int(v) for v in values if isinstance(v, int | float) and v > 0), 0)

        threads = read_property("maxThreadsPerMultiprocessor")
        warp = read_property("warpSize")
        memory = read_property("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor")
        if not threads or not memory:
            return None
        if warp == 64:
            registers, step = _REGISTERS_OF_CDNA.get(threads // warp // _PARTS, (0, 0))
            if not registers:
                return None
            return cls(
                *(threads, warp, _MOST_WORKGROUPS, _PARTS, registers, step, memory),
                shared_memory_step=512,
                single_waves=True,
            )
        capability = read_property("computeMajor"), read_property("computeMinor")
        registers = read_property("regsPerMultiprocessor")
        if warp != 32 or not capability[0] or not registers:
            return None
        parts = 2 if capability == (6, 0) else _PARTS
        most_blocks = _FEWER_BLOCKS.get(capability, 32)
        reserves = capability >= _RESERVED_FROM
        shared_memory_step = 128 if reserves else 256
        reserved = _RESERVED_BYTES if reserves else 0
        return cls(
            *(threads, warp, most_blocks, parts, registers // warp // parts, 8, memory),
            shared_memory_step=shared_memory_step,
            reserved=reserved,
        )

    def count_blocks(self, threads: Ints, registers: Ints, shared: Ints) -> Ints:
        """Return how many blocks of so many threads fit, by registers of a thread and bytes of
        shared memory of a block; 0 where the registers are not recorded. What ran fits once."""
        warps = np.maximum(-(-threads // self.warp), 1)
        by_warps = self.threads // self.warp // warps
        by_slots = np.full(len(warps), self.most_blocks, np.int64)
        if self.single_waves:
            by_slots[warps == 1] = self.threads // self.warp
        granted = _round_up(np.maximum(registers, 1), self.register_step)
        by_registers = self.parts * (self.registers // granted) // warps
        used = _round_up(np.maximum(shared, 0) + self.reserved, self.shared_memory_step)
        by_memory = self.shared_memory // np.maximum(used, 1)
        fewest = np.minimum.reduce([by_warps, by_slots, by_registers, by_memory])
        return np.where(registers > 0, np.maximum(fewest, 1), 0)


def _round_up(values: Ints, step: int) -> Ints:
    return np.asarray(-(-values // step) * step)
