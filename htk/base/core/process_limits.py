"""What this process may take of memory and processor time, held by the system where it does."""

import math
import os
import sys


def private_bytes() -> int:
    """Return the private memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def limit_private_bytes(most_bytes: int | None) -> None:
    """Have the system refuse private memory beyond this (None: what it allows).

    Not the address space: that counts mapped files too, so that a table in the cache would be
    refused for the size of its file. Both count what allocators reserve and never use.
    """
    if sys.platform != "linux":  # elsewhere the limit is not kept, or counts other things
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = hard if most_bytes is None else most_bytes
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limit_cpu_seconds(more_s: float) -> None:
    """Have the system end this process once it has used so many more seconds of a processor."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(used.ru_utime + used.ru_stime + more_s)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
