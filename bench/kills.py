"""Kill readers while they parse and write into one cache; every answer must stay the right one.

    python bench/kills.py [--kills 200] [--stalls 40] [--seed N] [-o FILE]

A small simulated job is opened again and again by processes that end at a random moment (SIGKILL),
two at a time, one of them of another version of htk. After each pair a reader that is left alone
must answer from the same cache what it answers without one, in both versions. Then disks: one that
is full, one without a folder to write, one that is slow (each opening, creation and renaming of a
file waits), and one that stalls: a reader is stopped at a random moment, as by a disk that does not
answer, while another one reads, writes and clears the same cache, and then goes on. Ends with 1 if
an answer differs.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from htk.base.io.store import Store
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job

ROOT = Path(__file__).parents[1]
JOB = Config("gpt3-126m", layers=2, gpus_per_node=2, seq=128, steps=2, stacks=False)
# Preloaded, so that a kill falls into parsing and writing: a process forks a reader for each line.
READER = """
import hashlib, json, os, sys
import htk.parsers.kineto.native
from htk.quantities.derived.registry import NAMES, find_maker
from htk.traces.trace.opening import OpenOptions, open_trace
for name in NAMES:
    find_maker(name)

def digest(folder, cache):
    trace = open_trace(folder, OpenOptions(cache=cache))
    tables = [trace.tables[name].to_pylist() for name in ("kernels", "cpu_ops", *NAMES)]
    return hashlib.sha256(repr(tables).encode()).hexdigest()

CALLS = ("open", "mmap.__new__", "tempfile.mkdtemp",
         *("os." + name for name in "listdir scandir mkdir rename remove rmdir utime".split()))
if sys.argv[1:] == ["slow"]:  # seconds for each: a network disk under load
    sys.addaudithook(lambda event, _: event in CALLS and __import__("time").sleep(0.02))

for line in sys.stdin:
    folder, cache = json.loads(line)
    child = os.fork()
    if child == 0:
        print("answer", digest(folder, cache), flush=True)
        os._exit(0)
    print("began", child, flush=True)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


class Reader:
    """A version of htk that answers, each time in a process of its own."""

    def __init__(
        self, code: Path, cache: Path, before: Callable[[], None] | None = None, *pace: str
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": str(code), "HTK_CACHE_DIR": str(cache)}
        if before is not None:  # on a full disk Python would keep modules cut short, unnoticed
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", READER, *pace],
            cwd=code,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )

    def begin(self, folder: Path, cache: bool) -> int:
        """Start to answer; returns the process that does."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(folder), cache]) + "\n")
        self._process.stdin.flush()
        return int(self._line("began"))

    def end(self) -> str | None:
        """Return the answer; None if the process was killed before it gave one."""
        answer = None
        while (line := self._read())[0] != "ended":
            answer = line[1] if line[0] == "answer" else answer
        if line[1] not in ("0", str(int(signal.SIGKILL))):
            raise RuntimeError(f"a reader ended with {line[1]}")
        return answer

    def answer(self, folder: Path, cache: bool = True) -> str | None:
        self.begin(folder, cache)
        return self.end()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _line(self, kind: str) -> str:
        first, second = self._read()
        assert first == kind, first
        return second

    def _read(self) -> tuple[str, str]:
        assert self._process.stdout
        line = self._process.stdout.readline().split()
        if len(line) != 2:
            raise RuntimeError(f"a reader said {line}")
        return line[0], line[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stalls", type=int, default=40)
    parser.add_argument("--seed", type=int)
    parser.add_argument("-o", "--output", type=Path, help="where the figures are written as JSON")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            "seed": seed,
            **run(Path(folder), options.kills, options.stalls, random.Random(seed)),
        }
    print(json.dumps(figures, indent=1))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    return int(bool(figures["wrong_answers"]))


def run(folder: Path, kills: int, stalls: int, dice: random.Random) -> dict[str, Any]:
    """Return how many were killed, while they wrote what, and how many answers were wrong."""
    job, cache = folder / "job", folder / "cache"
    simulate_job(check_config(JOB), job)
    readers = [Reader(code, cache) for code in (ROOT, other_version(folder / "other"))]
    fresh = [reader.answer(job, cache=False) for reader in readers]
    assert None not in fresh
    began = time.monotonic()
    readers[0].answer(job)  # what a reader takes that parses, derives and writes
    long = time.monotonic() - began
    killed = answered = wrong = left = 0
    swept = True
    while killed < kills:
        if dice.random() < 0.5:
            left += len(list(cache.glob(".new*")))
            Store(cache).clear()
            swept &= not list(cache.iterdir())
        began = time.monotonic()
        both = [reader.begin(job, True) for reader in readers]
        for process, moment in sorted((p, dice.uniform(0, 2 * long)) for p in both):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ends = [reader.end() for reader in readers]
        killed += ends.count(None)
        answers = [*ends, *(reader.answer(job) for reader in readers)]
        answered += sum(answer is not None for answer in answers)
        wrong += sum(
            answer not in (None, expected)
            for answer, expected in zip(answers, fresh * 2, strict=True)
        )
    for reader in readers:
        reader.close()
    disks = {name: disk(job, folder / name, before) == fresh[0] for name, before in DISKS.items()}
    disks["slow"] = disk(job, folder / "slow", _as_it_is, "slow") == fresh[0]
    stops, astray = stalled(job, folder / "stalled", stalls, long, fresh[0], dice)
    return {
        "kills": killed,
        "answers": answered,
        "wrong_answers": wrong + astray + sum(not right for right in disks.values()),
        "left_behind": left,
        "swept": swept,
        "disks": disks,
        "stalls": stops,
        "wrong_after_stalls": astray,
    }


def stalled(
    job: Path, cache: Path, rounds: int, long: float, expected: str | None, dice: random.Random
) -> tuple[int, int]:
    """Return how often a reader was stopped in the middle of its work while another one had the
    cache to itself, and how many answers of both were wrong."""
    readers = [Reader(ROOT, cache) for _ in range(2)]
    stops = wrong = 0
    for _ in range(rounds):
        if dice.random() < 0.5:
            Store(cache).clear()
        process = readers[0].begin(job, True)
        time.sleep(dice.uniform(0, 1.2 * long))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
            stops += 1
        answers = [readers[1].answer(job)]
        if dice.random() < 0.5:  # what the stopped one has open is gone, or of another's making
            Store(cache).clear()
            answers.append(readers[1].answer(job))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
        answers.append(readers[0].end())
        wrong += sum(answer != expected for answer in answers)
    for reader in readers:
        reader.close()
    return stops, wrong


def other_version(target: Path) -> Path:
    """A copy of the code that makes tables otherwise, as far as the cache can know."""
    for name in ("htk", "parsers", "analyses", "dashboard"):
        shutil.copytree(
            ROOT / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    with (target / "parsers/kineto/tables.py").open("a") as file:
        file.write("\n# another version\n")
    return target


def _full() -> None:
    """No file may grow beyond 20 kB: as a disk that is full, whoever runs this."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def _as_it_is() -> None:
    """Leave the disk alone."""


DISKS: dict[str, Callable[[], None] | None] = {"full": _full, "no_folder": None}


def disk(job: Path, cache: Path, before: Callable[[], None] | None, *pace: str) -> str | None:
    """Return the answer of a reader whose cache cannot be written, or slowly; twice, as the second
    may find what the first left."""
    if before is None:
        cache.write_text("a file where the folder should be")
    reader = Reader(ROOT, cache, before, *pace)
    answers = {reader.answer(job), reader.answer(job)}
    reader.close()
    return answers.pop() if len(answers) == 1 else None


if __name__ == "__main__":
    sys.exit(main())
