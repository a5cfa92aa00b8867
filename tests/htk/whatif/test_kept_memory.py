"""Each case in a process of its own: what another test has freed would be filled again."""

import subprocess
import sys
import textwrap

import pytest

MANY = 8_000_000  # of eight bytes: far more than the C library keeps by itself

MEASURED = """
import resource
import numpy as np
from htk.whatif.kept_memory import KeptMemory

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

before = resident()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux alone")


def grown(program: str) -> list[int]:
    """The process' growth wherever the program notes it."""
    code = MEASURED + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return [int(line) for line in done.stdout.split()]


def test_a_long_step_keeps_what_is_freed_until_it_is_gone() -> None:
    with_two, with_one, with_none = grown(
        f"""
        first, second = KeptMemory(1_000_000), KeptMemory(1_000_000)
        np.ones({MANY})
        print(resident() - before)
        del first
        print(resident() - before)
        del second
        print(resident() - before)
        """
    )
    assert with_two > 7 * MANY
    assert with_one > 7 * MANY
    assert with_none < MANY


def test_a_short_step_hands_everything_back() -> None:
    (after,) = grown(
        f"""
        kept = KeptMemory(50_000)
        np.ones({MANY})
        print(resident() - before)
        """
    )
    assert after < MANY
