"""How the C library hands out memory in a process of htk's own: the command line."""

import ctypes

# Of malloc.h, and bytes. The library asks the system for memory in pieces of 128 kB, and hands
# arrays back that the next ones take again: each time the pages have to be found and cleared.
_SETTINGS = {
    -1: 64 << 20,  # M_TRIM_THRESHOLD: freed memory at the end that stays
    -2: 4 << 20,  # M_TOP_PAD: asked for beyond what is needed
    -3: 32 << 20,  # M_MMAP_THRESHOLD: only larger arrays are mapped, and handed back when freed
}


def spare_page_faults() -> None:
    """Take memory from the system in large pieces; nothing, where the library cannot be told."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for name, value in _SETTINGS.items():
        tell(name, value)
