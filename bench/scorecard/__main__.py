"""Command line of the scorecard.

usage: python -m bench.scorecard [--full] [--facts FOLDER] [--json FILE] [--write]

Without --facts the measured rows are the few that lie in the project. Without --full a sample:
minutes; with it all seeds and rows: an hour. --write renews docs/scorecard.md and the table of
intervals.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.scorecard import measured, rows, simulated
from bench.scorecard.intervals import Learned, held_pct, table
from bench.scorecard.memory import classified
from bench.scorecard.page import ROADS, page
from bench.scorecard.score import Prediction, by_kind, summary

_ROOT = Path(__file__).parents[2]
_FACTS = Path(__file__).parent / "facts"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scorecard")
    parser.add_argument("--full", action="store_true", help="all seeds and rows")
    parser.add_argument("--facts", type=Path, default=_FACTS, help="folder of measured rows")
    parser.add_argument("--seeds", type=int, help="simulated clusters")
    parser.add_argument("--starts", type=int, help="measured rows to start from, of each kind")
    parser.add_argument("--json", type=Path, help="write every prediction to this file")
    parser.add_argument("--read", type=Path, nargs="*", help="predictions written before")
    parser.add_argument("--write", action="store_true", help="renew the page and the intervals")
    arguments = parser.parse_args()
    predictions = _read(arguments.read) if arguments.read else list(_all(arguments))
    learned = Learned(predictions)
    for road in ROADS:
        for kind, of_kind in by_kind(r for r in predictions if r.road == road).items():
            sums = summary(of_kind) | {"held_pct": held_pct(of_kind, learned)}
            rounded = {k: v if v is None else round(v, 2) for k, v in sums.items()}
            sys.stdout.write(json.dumps({"road": road, "kind": kind} | rounded) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in predictions], indent=1) + "\n")
    if arguments.write:
        sample = _sample(predictions, arguments.facts)
        text = page(predictions, classified(arguments.facts), sample)
        (_ROOT / "docs" / "scorecard.md").write_text(text, encoding="utf-8")
        intervals = _ROOT / "htk" / "whatif" / "calibration.toml"
        intervals.write_text(table(learned), encoding="utf-8")
    return 0


def _all(arguments: argparse.Namespace) -> Iterator[Prediction]:
    seeds = arguments.seeds if arguments.seeds is not None else (12 if arguments.full else 2)
    starts = arguments.starts if arguments.starts is not None else (None if arguments.full else 2)
    yield from simulated.predictions(range(1, seeds + 1))
    pairs = measured.sampled(list(rows.pairs(rows.load(arguments.facts))), starts)
    yield from measured.predictions(pairs)
    yield from measured.two_recordings(rows.batches(arguments.facts))


def _sample(predictions: list[Prediction], facts: Path) -> str:
    """Return how many pairs there are, and of which kinds only a sample."""
    answered = Counter(r.kind for r in predictions if r.road == "described")
    every = Counter(pair.kind for pair in rows.pairs(rows.load(facts)))
    sampled = [f"*{kind}*" for kind, count in sorted(every.items()) if answered[kind] < count]
    count = f"{answered.total()} predictions"
    if not sampled:
        return f"{count}: all pairs of all kinds."
    return f"{count}: all pairs, but of {', '.join(sampled)} a sample,\ndrawn once and for all."


def _read(paths: list[Path]) -> list[Prediction]:
    rows = [row for path in paths for row in json.loads(path.read_text())]
    return [Prediction(**row | {"edits": tuple(row["edits"])}) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
