"""The bench of many ranks measures what it says."""

import os
import sys
from pathlib import Path

import pytest

from bench.reach import anonymous_bytes, measured


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="read from /proc")
def test_own_memory_is_what_was_taken() -> None:
    before = anonymous_bytes(os.getpid())
    block = bytearray(64 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
    assert 60 << 20 < anonymous_bytes(os.getpid()) - before < 80 << 20
    assert anonymous_bytes(1 << 30) == 0  # no such process


def test_a_command_that_fails_ends_the_bench(tmp_path: Path) -> None:
    figures = measured(["--version"], tmp_path)
    assert figures["cpu_s"] > 0
    with pytest.raises(SystemExit, match="exit code 3"):
        measured(["summary", str(tmp_path / "none")], tmp_path)
