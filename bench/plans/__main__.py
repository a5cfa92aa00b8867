"""Command line of the scorecard of plans: seconds.

usage: python -m bench.plans --facts FOLDER [--write]

--write renews docs/plan_scorecard.md and the table that plans take their intervals from.
"""

import argparse
import sys
from pathlib import Path

from bench.plans.page import checked, page
from bench.plans.rows import load
from bench.plans.score import doubt, factors, misses, source_scores

_ROOT = Path(__file__).parents[2]
_FACTS = _ROOT / "bench/scorecard/facts"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.plans")
    parser.add_argument("--facts", type=Path, default=_FACTS, help="folder of measured rows")
    parser.add_argument("--write", action="store_true", help="renew the page and the table")
    given = parser.parse_args()
    rows = load(given.facts)
    found = misses(rows)
    text = page(rows, found, source_scores(rows, found))
    sys.stdout.write(text)
    if given.write:
        (_ROOT / "docs/plan_scorecard.md").write_text(text, encoding="utf-8")
        table = checked(found, doubt(found), factors(found))
        (_ROOT / "htk/plan/checked.toml").write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
