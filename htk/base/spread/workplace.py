"""The place where work on a recording runs, and how much memory it may take."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from htk.base.errors import UsageError
from htk.base.spread.mapper import ON, Mapper, ThreadMapper
from htk.base.spread.memory import free_bytes

# What reading takes for each stored byte, at most: text packed twelvefold, and as much again.
_READING_BYTES = 24
# As stored. Reading a smaller file is mostly short calls, which hold the interpreter's lock or wait
# for it after each: two threads take half as much CPU time again as one, for hardly less time.
_SMALL_BYTES = 1 << 20


def choose_mapper(on: str | None, workers: int | None = None) -> Mapper:
    """Return who does the work: `threads` (or None), `processes` or `ray`."""
    if on in (None, "threads"):
        return ThreadMapper(workers)
    if on == "processes":
        from htk.base.spread.processes import ProcessMapper

        return ProcessMapper(workers)
    if on == "ray":
        from htk.base.spread.on_ray import RayMapper

        return RayMapper(workers)
    raise UsageError(f"on {on!r}: expected one of {', '.join(ON)}")


@dataclass(frozen=True)
class Workplace:
    """The place where questions are worked out. Workers are started when they are first needed."""

    on: str | None = None  # threads (None), processes or ray
    memory_bytes: int | None = None  # of all workers here together; None: half of what is free

    @cached_property
    def mapper(self) -> Mapper:
        return choose_mapper(self.on)

    @cached_property
    def limit_bytes(self) -> int:
        """The memory that tables and what is made of them may take, in bytes."""
        return self.memory_bytes or free_bytes() // 2

    def files_at_once(self, largest_bytes: int) -> int:
        """Return how many files of this size may be read here at a time."""
        fit = self.limit_bytes // max(_READING_BYTES * largest_bytes, 1)
        return max(1, min(os.cpu_count() or 1, fit))

    def reader(self, sizes: Sequence[int], *, waited_for: bool) -> Mapper:
        """Return who reads files of these sizes here: as many threads as memory allows, but one
        where small ones hold most of the bytes, unless other processes or machines are waited
        for."""
        in_small = sum(size for size in sizes if size < _SMALL_BYTES)
        in_turn = 2 * in_small >= sum(sizes) and not waited_for
        workers = 1 if in_turn else self.files_at_once(max(sizes, default=0))
        return ThreadMapper(workers)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the work was asked to be done outside this process."""
        return self.on not in (None, "threads")

    def close(self) -> None:
        """End the workers, if any were started."""
        if "mapper" in self.__dict__:
            self.mapper.close()


@dataclass(frozen=True)
class Errand:
    """A question that is being answered: where, and how a worker there gets at its tables."""

    work: Workplace
    read: Callable[[str], Any]  # a table by its name; it can travel


_ERRAND: ContextVar[Errand | None] = ContextVar("errand", default=None)


def current_errand() -> Errand | None:
    """Return the question that is being answered; None outside of one."""
    return _ERRAND.get()


@contextmanager
def announce_errand(errand: Errand) -> Iterator[None]:
    """Tell what runs in the block which question it answers."""
    token = _ERRAND.set(errand)
    try:
        yield
    finally:
        _ERRAND.reset(token)
