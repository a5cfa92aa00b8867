"""Fail where a command has become twice as slow, beside an empty Python in the same run.

    python -m bench.check

Runs the commands of bench/commands.py on the shipped small ranks and compares their ratios with
those that are kept in bench/figures/commands.json. Exit status 4: one is more than twice as large.
A machine that is merely slow or busy slows both sides of a ratio.
"""

import json
import sys
import tempfile
from pathlib import Path

from bench.commands import SMALL, measure

FIGURES = Path(__file__).parent / "figures/commands.json"
QUESTION, INPUT, ROUNDS = "time-breakdown", "8 small ranks", 3


def main() -> int:
    kept = next(
        row["times_python"]
        for row in json.loads(FIGURES.read_text())["figures"]["commands"]
        if (row["question"], row["input"]) == (QUESTION, INPUT)
    )
    with tempfile.TemporaryDirectory() as scratch:
        now = measure(QUESTION, INPUT, SMALL, None, Path(scratch), {}, ROUNDS)["times_python"]
    slower = 0
    for name in ("cold", "warm", "again"):
        ratio = now[name] / kept[name]
        slower += ratio > 2
        print(
            f"{name}: {now[name]:.1f} times an empty Python, {kept[name]:.1f} as kept ({ratio:.2f})"
        )
    return 4 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
