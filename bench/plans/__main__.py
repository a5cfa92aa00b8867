"""Command line of the scorecard of plans: seconds.

usage: python -m bench.plans --facts FOLDER [--write]

--write renews docs/plan_scorecard.md and the table that plans take their intervals from.
"""

import argparse
import sys
from pathlib import Path

from bench.plans.command import run
from bench.plans.page import checked, page
from bench.plans.rows import load
from bench.plans.score import factors, misses, source_scores, trait_variances

_FACTS = Path(__file__).parents[1] / "scorecard/facts"


def _card(arguments: argparse.Namespace) -> tuple[str, str]:
    rows = load(arguments.facts)
    missed = misses(rows)
    text = page(rows, missed, source_scores(rows, missed))
    return text, checked(missed, trait_variances(missed), factors(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.plans")
    parser.add_argument("--facts", type=Path, default=_FACTS, help="folder of measured rows")
    sys.exit(run(parser, _card, "docs/plan_scorecard.md", "htk/planning/plan/checked.toml"))
