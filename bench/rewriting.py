"""What commands that write a trace again cost: CPU of the whole command for each event.

    python bench/rewriting.py [--trace TRACE]

Prints one JSON object: microseconds an event of `htk scrub` and `htk convert --to chrome` on one
large simulated trace (or TRACE), everything included, the smallest of three runs.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.commands import HTK, _run, cache, simulated
from htk.traces.trace.opening import OpenOptions, open_trace

RUNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trace", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        trace = args.trace or simulated(scratch)
        ranks = open_trace(trace, OpenOptions(cache=False)).tables["ranks"]
        events = sum(ranks["events"].to_pylist())
        commands: dict[str, Sequence[str]] = {
            "htk scrub": ["scrub", str(trace), "-o"],
            "htk convert --to chrome": ["convert", str(trace), "--to", "chrome", "-o"],
        }
        cost = {name: _least(words, scratch, name) for name, words in commands.items()}
    each = {name: round(1e6 * seconds / events, 2) for name, seconds in cost.items()}
    print(json.dumps({"events": events, "us_per_event": each}, indent=1))


def _least(words: Sequence[str], scratch: Path, name: str) -> float:
    """Return the CPU seconds of the fastest run, each into a folder of its own."""
    outputs = [scratch / f"{name.split()[1]}{k}" for k in range(RUNS)]
    return min(_run([*HTK, *words, str(to)], cache(scratch / "cache")) for to in outputs)


if __name__ == "__main__":
    main()
