"""Command line of the scorecard of servers: seconds.

usage: python -m bench.serving [--write]

--write renews docs/serving_scorecard.md and the table that `htk plan-serving` takes its intervals
from.
"""

import argparse
import sys

from bench.plans.command import run
from bench.plans.score import trait_variances
from bench.serving.page import checked, misses, page, reach
from bench.serving.rows import published


def _card(_: argparse.Namespace) -> tuple[str, str]:
    rows = published()
    missed = misses(rows)
    return page(rows, missed), checked(missed, trait_variances(missed), reach(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.serving")
    sys.exit(run(parser, _card, "docs/serving_scorecard.md", "htk/planning/serving/checked.toml"))
