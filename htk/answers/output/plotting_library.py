"""Plotly's library with the kinds of traces that pictures are made of; `.ci/plotly` builds it."""

from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "assets" / "plotly.min.js.gz"


@cache
def packed_library() -> bytes:
    """Return the script, compressed; it defines `Plotly`."""
    return _FILE.read_bytes()
