"""Where the work on a recording runs, and how much memory it may take."""

import os
from dataclasses import dataclass
from functools import cached_property

from htk.spread.mapper import Mapper, mapper
from htk.spread.memory import free_bytes

# What reading takes for each stored byte, at most: text packed twelvefold, and as much again.
_READING_BYTES = 24


@dataclass(frozen=True)
class Workplace:
    """Where questions are worked out. The workers are started when they are first needed."""

    on: str | None = None  # threads (None), processes or ray
    memory_bytes: int | None = None  # of all workers here together; None: half of what is free

    @cached_property
    def mapper(self) -> Mapper:
        return mapper(self.on)

    @cached_property
    def limit_bytes(self) -> int:
        """The memory that tables and what is made of them may take."""
        return self.memory_bytes or free_bytes() // 2

    def files_at_once(self, largest_bytes: int) -> int:
        """Return how many files of this size may be read here at a time."""
        fit = self.limit_bytes // max(_READING_BYTES * largest_bytes, 1)
        return max(1, min(os.cpu_count() or 1, fit))

    @property
    def is_elsewhere(self) -> bool:
        """Whether the work was asked to be done outside this process."""
        return self.on not in (None, "threads")

    def close(self) -> None:
        """End the workers, if any were started."""
        if "mapper" in self.__dict__:
            self.mapper.close()
