"""What `kernel-top --by …` costs beside kernel-top alone: CPU time of whole processes, cold.

    python bench/rows_by.py [--rounds 7] [--large TRACE]

Words take turns, medians count; every run begins with an empty cache. Prints one JSON object.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.commands import HTK, Contestant, cache, emptied, simulated, take_turns
from htk.base.names.rows_by import WORDS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        trace = args.large or simulated(Path(scratch))
        print(json.dumps(report(Path(scratch), trace, args.rounds), indent=1))


def report(scratch: Path, trace: Path, rounds: int) -> dict[str, Any]:
    """Return the median CPU seconds of each word, and its ratio to rows by kernel."""
    folder = scratch / "cold"
    contestants = {
        word: Contestant(
            lambda k, word=word: [*HTK, "kernel-top", str(trace), "--by", word],
            lambda: emptied(folder),
            cache(folder),
        )
        for word in WORDS
    }
    take_turns(contestants, rounds)
    medians = {word: statistics.median(c.seconds) for word, c in contestants.items()}
    return {
        "cpu_s": {word: round(value, 4) for word, value in medians.items()},
        "times_kernel_top": {w: round(v / medians["kernel"], 2) for w, v in medians.items()},
    }


if __name__ == "__main__":
    main()
