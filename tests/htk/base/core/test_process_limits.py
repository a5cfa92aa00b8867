"""What the system refuses a process beyond its limits, and what it lets pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
# In a process of its own, as a limit holds for all that comes after it.
TRIALS = """
import json, mmap, resource, sys
import numpy as np
import pyarrow as pa
from htk.base.core.process_limits import limit_private_bytes, private_bytes

MIB = 1 << 20
pool = pa.system_memory_pool()  # others set memory aside before they use it
file = open(sys.argv[1], "rb")

def text(): return "x" * (128 * MIB)
def array(): return np.ones(128 * MIB, np.int8)
def arrow(): return pa.allocate_buffer(128 * MIB, memory_pool=pool)
def private_map(): return mmap.mmap(-1, 128 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def mapped_file(): return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
TRIED = (text, array, arrow, private_map, mapped_file)

def outcome(function):
    try:
        function()
    except (MemoryError, pa.ArrowMemoryError, OSError) as error:
        return type(error).__name__
    return "allowed"

def outcomes():
    return {function.__name__: outcome(function) for function in TRIED}

before = resource.getrlimit(resource.RLIMIT_DATA)
result = {"without": outcomes()}
limit_private_bytes(private_bytes() + 64 * MIB)
result["private"] = outcomes()
limit_private_bytes(None)
result["restored"] = resource.getrlimit(resource.RLIMIT_DATA) == before
result["after"] = outcomes()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 64 * MIB,) * 2)
result["address_space"] = outcomes()
print(json.dumps(result))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps such a limit")
def test_private_memory_is_limited_and_a_mapped_file_is_not(tmp_path: Path) -> None:
    """A limit of the address space would refuse a cached table for the size of its file."""
    with (tmp_path / "table").open("wb") as file:
        file.truncate(128 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", TRIALS, str(tmp_path / "table")],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    trials = ("text", "array", "arrow", "private_map", "mapped_file")
    assert result["without"] == result["after"] == dict.fromkeys(trials, "allowed")
    assert result["restored"]
    private = result["private"]
    assert private.pop("mapped_file") == "allowed"
    assert "allowed" not in private.values() and len(private) == 4
    assert "allowed" not in result["address_space"].values()
