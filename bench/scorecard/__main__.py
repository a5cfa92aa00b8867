"""Command line of the scorecard.

usage: python -m bench.scorecard [--full] [--json FILE]
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.scorecard.score import by_kind, summary
from bench.scorecard.simulated import predictions


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scorecard")
    parser.add_argument("--full", action="store_true", help="all seeds and rows")
    parser.add_argument("--json", type=Path, help="write every prediction to this file")
    given = parser.parse_args()
    found = list(predictions(range(1, 13) if given.full else range(1, 3)))
    for kind, rows in by_kind(found).items():
        told = {k: v if v is None else round(v, 2) for k, v in summary(rows).items()}
        sys.stdout.write(json.dumps({"road": "simulated", "kind": kind} | told) + "\n")
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
