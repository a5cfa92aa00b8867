"""How a result likes to be drawn, said without a drawing library."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """A bar for each x; several y are stacked (or grouped), or one y is split by colour."""

    x: str
    y: str | tuple[str, ...]
    color: str | None = None
    stacked: bool = True
    horizontal: bool = False
    instead: str | None = None  # drawn where nothing of y was recorded


@dataclass(frozen=True)
class Line:
    """y over x, a line for each colour and owner; `steps` hold a value until the next."""

    x: str
    y: str | tuple[str, ...]
    color: str | None = None
    steps: bool = False
    owner: tuple[str, ...] = ()  # columns that say whose a row is; none: its rank


@dataclass(frozen=True)
class Scatter:
    """A point for each row."""

    x: str
    y: str
    color: str | None = None
    size: str | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Heatmap:
    """A cell for each (x, y), coloured by value."""

    x: str
    y: str
    value: str
    missing: str = ""  # what a cell without a row is: shown in the colour of the unrecorded


@dataclass(frozen=True)
class TimelineChart:
    """A span from start to end for each row, one lane for each value of lane."""

    start: str
    end: str
    lane: str
    color: str | None = None


Chart = Bar | Line | Scatter | Heatmap | TimelineChart
