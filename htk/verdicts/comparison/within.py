"""What changed in the middle of one of two recordings: its steps are then of two things."""

from htk.answers.ask import ask_trace
from htk.base.core.humanize import shorten_text
from htk.base.errors import HtkError
from htk.traces.trace.trace import Trace

_MOST = 3  # are named


def change_notes(trace: Trace, word: str) -> list[str]:
    """Return what `htk change-points` finds in a recording, in words; nothing where it cannot."""
    try:
        shifts = ask_trace(trace, "change_points").table.slice(0, _MOST).to_pylist()
    except HtkError:  # too few steps, or nothing of a GPU
        return []
    return [
        f"within the {word}, {shorten_text(row['name'], 60)}"
        f"{'' if row['rank'] is None else ' on rank ' + str(row['rank'])} is "
        f"{row['change_pct']:+.1f} % from step {row['step']} on (htk change-points)"
        for row in shifts
    ]
