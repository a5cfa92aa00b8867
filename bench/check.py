"""Fail where a command has become twice as slow, beside imports that it needs, in the same run.

    python -m bench.check

Runs the commands of bench/commands.py on the shipped small ranks and compares their ratios with
those that are kept in bench/figures/commands.json. Exit status 4: one is more than twice as large,
three times in turn. A machine that is merely slow or busy slows both sides of a ratio.
"""

import json
import sys
import tempfile
from pathlib import Path

from bench.commands import SMALL, AskedFile, measure

FIGURES = Path(__file__).parent / "figures/commands.json"
QUESTION, INPUT, ROUNDS, TRIES = "time-breakdown", "8 small ranks", 3, 3
NAMES = ("cold", "warm", "again")


def main() -> int:
    kept = next(
        row["times_imports"]
        for row in json.loads(FIGURES.read_text())["figures"]["commands"]
        if (row["question"], row["input"]) == (QUESTION, INPUT)
    )
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory() as scratch:
            asked = AskedFile(QUESTION, INPUT, SMALL)
            measured = measure(Path(sys.executable), asked, Path(scratch), {}, ROUNDS)
        now = measured["times_imports"]
        for name in NAMES:
            print(f"{name}: {now[name]:.1f} times the imports, {kept[name]:.1f} as kept")
        if all(now[name] <= 2 * kept[name] for name in NAMES):
            return 0
    return 4


if __name__ == "__main__":
    sys.exit(main())
