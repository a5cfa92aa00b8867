"""How much memory work may take: what is free here, within the limits of a container."""

import ctypes
import re
from contextlib import suppress
from pathlib import Path

from htk.base.core.humanize import shorten_text
from htk.base.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST = 64 << 20  # the interpreter and its libraries take most of this
_MOST = 1 << 50
_UNKNOWN = 4 << 30  # of a system that does not say what is free
_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def parse_bytes(text: str) -> int:
    """Return a size such as 4GB, 512MiB or 2000000 in bytes; units are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise UsageError(f"memory {shorten_text(text)!r}: expected a size such as 4GB")
    size = float(match[1]) * _UNITS[match[2].upper()]
    if not _LEAST <= size <= _MOST:
        limits = f"the least is {_LEAST >> 20}MB, the most {_MOST >> 40}TB"
        raise UsageError(f"memory {shorten_text(text)!r}: {limits}")
    return int(size)


def free_bytes(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Return how much more memory this process may take."""
    bounds = [_read_available(proc), *_left_in_group(cgroup, proc)]
    return min((bound for bound in bounds if bound is not None), default=_UNKNOWN)


def release_free_memory() -> None:
    """Give memory that is free within the process back to the system, where that can be done."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _read_available(proc: Path) -> int | None:
    with suppress(OSError):
        match = re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.M)
        return int(match[1]) << 10 if match else None
    return None


def _left_in_group(cgroup: Path, proc: Path) -> list[int]:
    """Return what each control group that the process is in has left."""
    left = []
    for folder in _list_control_groups(cgroup, proc):
        for limit, used, prefix in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            with suppress(OSError, ValueError):  # "max": none
                bound = int((folder / limit).read_text())
                taken = int((folder / used).read_text()) - _pages_of_files(folder, prefix)
                left.append(min(bound, max(bound - taken, 0)))
    return left


def _pages_of_files(group: Path, prefix: str) -> int:
    """Return what of a group's memory are pages of files: they count as used, and are dropped when
    memory is needed. Who has read many traces would have none left."""
    with suppress(OSError):
        facts = (group / "memory.stat").read_text()
        pages = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", facts, re.M)
        return sum(map(int, pages))
    return 0


def _list_control_groups(cgroup: Path, proc: Path) -> list[Path]:
    """Return the folders of the process' control groups, and of those round them."""
    names = []
    with suppress(OSError):
        names = [
            line.split(":", 2)[2]
            for line in (proc / "self/cgroup").read_text().splitlines()
            if line.split(":", 2)[1] in ("", "memory")
        ]
    folders = {cgroup, cgroup / "memory"}
    for name in names:
        for root in (cgroup, cgroup / "memory"):
            folder = root / name.strip("/")
            folders.update(f for f in (folder, *folder.parents) if f.is_relative_to(cgroup))
    return sorted(folders)
