"""Parts of a verdict: shares of the time, and causes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Part of the recorded window; a mean over ranks."""

    name: str
    time_ns: int
    pct: float
    analysis: str


@dataclass(frozen=True)
class Cause:
    finding: str
    evidence: str
    advice: str
    time_ns: int | None
    pct: float | None
    analysis: str
