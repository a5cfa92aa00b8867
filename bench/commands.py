"""How long commands take as they are typed, beside other tools' scripts: ratios of one run.

    python bench/commands.py [--rounds 7] [--large TRACE] [--peers FOLDER] [--tracelens CHECKOUT]

CPU seconds of whole processes, imports and children included, of a wheel that was installed, as a
user types them; contestants take turns, medians count, beside the imports that every table needs.
`cold` has an empty cache, `warm` has the tables and a new question, `again` repeats a
question. Inputs: one large trace, eight ranks of some 57 kB, of 430 kB and of the large trace's
size; --large is the large one (default: a simulated rank of some 300,000 events). Prints one JSON
object.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers import SCRIPTS, environment_of_user, install_wheel, interpreters
from bench.reach import simulate

ROOT = Path(__file__).parents[1]
SMALL = ROOT / "sample_traces/simulated/llama2-7b"
SMALLEST = "8 ranks of 57 kB"
_JOB = ("--model", "llama2-7b", "--layers", "8", "--steps", "70", "--nodes", "1")
_JOB += ("--gpus-per-node", "1")
HTK = (str(Path(sys.executable).with_name("htk")),)  # the installed command, not a module
IMPORTS = "import numpy, pyarrow.compute"  # what every table needs: the unit of cost
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # as the command has it


@dataclass
class Contestant:
    """A command line, made anew for each round, and the CPU seconds that its rounds took."""

    words: Callable[[int], Sequence[str]]
    before: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)


class AskedFile(NamedTuple):
    """A question, and what it is asked of."""

    question: str
    input: str  # in words
    path: Path
    option: str | None = None  # which makes it another question of the same cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", type=Path)
    parser.add_argument("--peers", type=Path, help="folder of the other tools' environments")
    parser.add_argument("--tracelens", type=Path, help="checkout of TraceLens")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        peers = interpreters(args.peers, args.tracelens) if args.peers else {}
        python = install_wheel(Path(scratch) / "installed")
        figures = report(python, Path(scratch), args.large, peers, args.rounds)
        print(json.dumps(figures, indent=1))


def report(
    python: Path, scratch: Path, large: Path | None, peers: Mapping[str, Path], rounds: int
) -> dict[str, Any]:
    """Return the medians of each command, their spread, and ratios to the imports alone."""
    large_trace = large or simulated(scratch)
    works = [
        AskedFile("kernel-top", "one large trace", large_trace, "--n"),
        AskedFile("summary", "one large trace", large_trace),
        AskedFile("time-breakdown", SMALLEST, _smallest(scratch / "smallest")),
        AskedFile("time-breakdown", "8 small ranks", SMALL),
        AskedFile("time-breakdown", "8 large ranks", _copies(large_trace, scratch / "ranks")),
    ]
    rows = [measure(python, work, scratch, peers, rounds) for work in works]
    return {"starting": _starting(python, rounds), "commands": rows}


def measure(
    python: Path, asked: AskedFile, scratch: Path, peers: Mapping[str, Path], rounds: int
) -> dict[str, Any]:
    cold = scratch / "cold"
    warm = scratch / "warm"
    htk = str(python.with_name("htk"))

    same = [htk, asked.question, str(asked.path)]

    def another(k: int) -> list[str]:
        # A new question of the same cost: another number of rows, or a window that cuts nothing.
        changed = [asked.option, str(30 + k)] if asked.option else ["--to", f"{10**8 + k}s"]
        return [*same, *changed]

    contestants = {
        "imports": importing(python),
        "cold": Contestant(lambda k: same, lambda: emptied(cold), cache(cold)),
        "warm": Contestant(another, environment=cache(warm)),
        "again": Contestant(lambda k: same, environment=cache(warm)),
    }
    for tool, its_python in peers.items():
        words = [str(its_python), "-c", SCRIPTS[asked.question][tool], str(asked.path)]
        contestants[tool] = Contestant(lambda k, words=words: words)
    _run(same, cache(warm))
    take_turns(contestants, rounds)
    return {"question": asked.question, "input": asked.input, **_figures(contestants)}


def take_turns(contestants: Mapping[str, Contestant], rounds: int) -> None:
    """Run every contestant once a round, so that a busy machine is busy for all of them."""
    for k in range(rounds):
        for contestant in contestants.values():
            contestant.before()
            contestant.seconds.append(_run(contestant.words(k), contestant.environment))


def _figures(contestants: Mapping[str, Contestant]) -> dict[str, Any]:
    medians = {name: statistics.median(c.seconds) for name, c in contestants.items()}
    return {
        "cpu_s": {name: round(value, 4) for name, value in medians.items()},
        "spread_pct": {
            name: round(100 * (max(c.seconds) - min(c.seconds)) / 2 / medians[name])
            for name, c in contestants.items()
        },
        "times_imports": {n: round(v / medians["imports"], 2) for n, v in medians.items()},
    }


def importing(python: Path) -> Contestant:
    return Contestant(lambda k: [str(python), "-c", IMPORTS], environment=_ONE_THREAD)


def _starting(python: Path, rounds: int) -> dict[str, Any]:
    """Return what start-up costs: Python, the libraries of a table, and commands that need none."""
    htk = str(python.with_name("htk"))
    contestants = {
        "imports": importing(python),
        "python": Contestant(lambda k: [str(python), "-c", "pass"]),
        "import htk": Contestant(lambda k: [str(python), "-P", "-c", "import htk"]),
        "htk --help": Contestant(lambda k: [htk, "--help"]),
        "htk --version": Contestant(lambda k: [htk, "--version"]),
    }
    take_turns(contestants, rounds)
    return _figures(contestants)


def _run(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the CPU seconds of a command and its children."""
    child = subprocess.Popen(
        words,
        env=environment_of_user() | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    words_of_error = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        reason = words_of_error.decode(errors="replace").strip()[-300:]
        raise SystemExit(f"{' '.join(words)[:200]}: exit code {child.returncode}: {reason}")
    return used.ru_utime + used.ru_stime


def cache(folder: Path) -> dict[str, str]:
    return {"HTK_CACHE_DIR": str(folder)}


def emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def simulated(scratch: Path) -> Path:
    _run([*HTK, "simulate", *_JOB, "-o", str(scratch / "job")], {})
    return next((scratch / "job").glob("*.json*"))


def _smallest(folder: Path) -> Path:
    return simulate(folder, 8, "--layers", "1")


def _copies(trace: Path, folder: Path) -> Path:
    folder.mkdir()
    for k in range(8):
        shutil.copy(trace, folder / f"rank{k}.{trace.name.partition('.')[2]}")
    return folder


if __name__ == "__main__":
    main()
