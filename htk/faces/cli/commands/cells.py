"""Cells of tables that commands without an analysis print: by heading, from rows of an answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from htk.base.core.humanize import format_duration
from htk.base.mappings import Fields

if TYPE_CHECKING:
    from htk.base.core.label import Label

NONE = "–"
Cell = Callable[[Fields], str]
Format = Callable[[Any], str]


def cell_of(name: str, how: Format) -> Cell:
    """Return what writes a column's value."""
    return lambda row: NONE if row[name] is None else how(row[name])


def interval_of(name: str, how: Format = format_duration, percent: int = 90) -> Cell:
    """Return what writes a column's interval."""
    low = f"{name}_lo{percent}"
    high = f"{name}_hi{percent}"
    return lambda row: NONE if row[low] is None else f"{how(row[low])} … {how(row[high])}"


def print_rows(
    label: "Label", rows: Sequence[Fields], cells: Mapping[str, Cell], limit: int, target: Any
) -> None:
    """Print rows; columns that hold nothing are left out."""
    from htk.answers.output.render import print_cells

    columns = {heading: [cell(row) for row in rows] for heading, cell in cells.items()}
    print_cells(label, columns, empty=NONE, limit=limit, file=target)
