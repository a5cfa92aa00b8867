"""Numbers as a line of text, a character each."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def draw_sparkline(values: Sequence[float]) -> str:
    """Return a bar for each value, from the least to the largest of them."""
    low = min(values, default=0.0)
    high = max(values, default=0.0)
    if high <= low:
        return _BARS[3] * len(values)
    return "".join(_BARS[round((v - low) / (high - low) * (len(_BARS) - 1))] for v in values)
