import gc
import resource
import sys

import numpy as np
import pytest

from htk.whatif.kept_memory import KeptMemory

MANY = 8_000_000  # of eight bytes: far more than the C library keeps by itself

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux alone")


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def filled_and_freed() -> None:
    np.ones(MANY)


def test_a_long_step_keeps_what_is_freed_until_it_is_gone():
    gc.collect()
    before = resident_bytes()
    first, second = KeptMemory(1_000_000), KeptMemory(1_000_000)
    filled_and_freed()
    assert resident_bytes() - before > 7 * MANY
    del first
    assert resident_bytes() - before > 7 * MANY
    del second
    assert resident_bytes() - before < MANY


def test_a_short_step_hands_everything_back():
    gc.collect()
    before = resident_bytes()
    kept = KeptMemory(50_000)
    filled_and_freed()
    assert resident_bytes() - before < MANY
    del kept
