"""What the scorecards of plans share: print the page, and with --write renew it with its table."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run(
    parser: argparse.ArgumentParser,
    card: Callable[[argparse.Namespace], tuple[str, str]],
    page_file: str,
    table_file: str,
) -> int:
    """Print the page of a scorecard; with --write, renew its file and the table of intervals.

    `card` returns the texts of both.
    """
    parser.add_argument("--write", action="store_true", help="renew the page and the table")
    arguments = parser.parse_args()
    page, table = card(arguments)
    sys.stdout.write(page)
    if arguments.write:
        (_ROOT / page_file).write_text(page, encoding="utf-8")
        (_ROOT / table_file).write_text(table, encoding="utf-8")
    return 0
