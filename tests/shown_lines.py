"""Lines of an answer as a page shows them and as a command prints them, figures left out."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_MASKS = (
    (r"\((?:s3:/)?/\S+\)", "(PLACE)"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,16}\b", "ID"),
    (r"\bc\d\b", "ID"),
    (r"\[[\w-]+, ", "[MODEL, "),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d\b", "DATE"),
    (r"\b\d[\d,]*(?:\.\d+)?(?: (?:ns|µs|ms|s))?", "N"),
)


def shown(page: str, command: str) -> list[str]:
    """Return the lines that a page shows below a command, up to the next one."""
    text = re.sub(r"\\\n\s*", "", (DOCS / page).read_text(encoding="utf-8"))
    below = text.partition(f"$ {command}")[2].partition("\n")[2]
    lines = re.split(r"^(?:\$ |```)", below, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    assert lines, f"{page} shows nothing below {command}"
    return lines


def masked(text: str) -> str:
    """Return a text with its figures, places, dates and hashes by their kind alone."""
    for pattern, kind in _MASKS:
        text = re.sub(pattern, kind, text)
    return text
