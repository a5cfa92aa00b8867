"""Keeps the memory of large arrays in the process while a long step is at hand.

The C library hands an array of some megabytes back to the system when it is freed, and the next one
begins as pages that the system has to find and clear: of a what-if on a million activities that is
up to half of the time. Where the library cannot be told otherwise, nothing happens.
"""

import ctypes
import weakref
from threading import RLock

_LONG = 100_000  # activities; of shorter steps no array is that large
# of malloc.h
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_KEPT = {_TRIM_THRESHOLD: -1, _MMAP_MAX: 0}  # nothing is handed back
_USUAL = {_TRIM_THRESHOLD: 1 << 25, _MMAP_MAX: 1 << 16}


class KeptMemory:
    """As long as one of these exists, freed memory stays in the process."""

    def __init__(self, activities: int) -> None:
        if activities >= _LONG:
            _count_holders(1)
            weakref.finalize(self, _count_holders, -1).atexit = False


_holders = 0
_lock = RLock()  # what the collector finds may be counted within a count


def _count_holders(more: int) -> None:
    global _holders
    with _lock:
        before = _holders
        _holders = _holders + more
        if not before:
            _tell_allocator(_KEPT)
        elif not _holders and _tell_allocator(_USUAL):
            ctypes.CDLL(None).malloc_trim(0)


def _tell_allocator(settings: dict[int, int]) -> bool:
    """Tell the C library; False if it is not one that can be told."""
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
        _ = library.malloc_trim
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(name, value) == 1 for name, value in settings.items())
