"""Command line of the scorecard of servers: seconds.

usage: python -m bench.serving [--write]

--write renews docs/serving_scorecard.md and the table that `htk plan --serve` takes its intervals
from.
"""

import argparse
import sys
from pathlib import Path

from bench.plans.score import doubt
from bench.serving.page import checked, misses, page, reach
from bench.serving.rows import published

_ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.serving")
    parser.add_argument("--write", action="store_true", help="renew the page and the table")
    arguments = parser.parse_args()
    rows = published()
    missed = misses(rows)
    text = page(rows, missed)
    sys.stdout.write(text)
    if arguments.write:
        (_ROOT / "docs/serving_scorecard.md").write_text(text, encoding="utf-8")
        table = checked(missed, doubt(missed), reach(missed))
        (_ROOT / "htk/serving/checked.toml").write_text(table, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
