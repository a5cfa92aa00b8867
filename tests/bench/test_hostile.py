"""A few of the attacks that run each night: absurd integers in files, random options."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.hostile_counts import SAMPLES
from bench.protobuf import decode_message, encode_message

ROOT = Path(__file__).parents[2]
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux'")


@on_linux
@pytest.mark.parametrize(
    "words",
    [
        ["bench.hostile_counts", "--seed", "3", "--cases", "4"],
        ["bench.option_fuzz", "--seed", "3", "--runs", "4"],
    ],
    ids=lambda words: words[0],
)
def test_attacks_end_in_answers_or_refusals(words: list[str]) -> None:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("file", ["rocprof_perfetto/two_steps.pftrace", "xplane/host.xplane.pb"])
def test_a_message_is_written_as_it_was_read(file: str) -> None:
    data = (SAMPLES / file).read_bytes()
    fields = decode_message(data)
    assert encode_message(fields) == data
