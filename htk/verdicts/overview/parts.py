"""Parts of a verdict: shares of the time, and causes."""

from dataclasses import dataclass

from htk.base.core.humanize import format_duration


@dataclass(frozen=True)
class Share:
    """Part of the recorded window; a mean over ranks."""

    name: str
    time_ns: int
    pct: float
    analysis: str


@dataclass(frozen=True)
class FirstCause:
    """A cause as all faces tell it."""

    finding: str
    evidence: str
    advice: str
    time_ns: int | None  # recorded, that shows it
    pct: float | None  # of the recorded window
    analysis: str
    gain_ns: int | None = None  # of a step without it, by replay; None: cannot be told
    low_ns: int | None = None  # its 90 % interval
    high_ns: int | None = None
    together_ns: int | None = None  # of a step without it and those before it
    edit: str | None = None  # the option of htk whatif
    overlaps: str | None = None  # how much of the gain goes with causes before it

    def cost_ns(self, total_ns: int) -> float | None:
        """Return what a step gains, or else the recorded part of it; `total_ns`: of a step."""
        if self.gain_ns is not None or self.pct is None:
            return self.gain_ns
        return self.pct / 100 * total_ns

    def cost_in_words(self, total_ns: int) -> str:
        """Return that with its interval, or that it is but recorded; "": not a matter of time."""
        cost = self.cost_ns(total_ns)
        if cost is None:
            return ""
        if self.gain_ns is None or self.low_ns is None or self.high_ns is None:
            return f"{format_duration(cost)} recorded"
        ends = f"{format_duration(max(self.low_ns, 0))} to {format_duration(self.high_ns)}"
        return f"{format_duration(cost)} ({ends})"


def tell_gains_together(causes: tuple[FirstCause, ...]) -> str:
    """Return what a step gains without the first two, and the first three, of those whose gain is
    known; "": of fewer."""
    gains = [(k, c.together_ns) for k, c in enumerate(causes, 1) if c.together_ns is not None]
    numbers = [number for number, _ in gains]
    parts = [
        f"{_name_causes(numbers[: n + 1])} {format_duration(ns)}"
        for n, (_, ns) in enumerate(gains)
        if n > 0
    ]
    return f"together: {', '.join(parts)}" if parts else ""


def _name_causes(numbers: list[int]) -> str:
    """Name two or three causes by their numbers in a list."""
    if numbers[-1] == len(numbers):
        return f"the first {'two' if len(numbers) == 2 else 'three'}"
    return f"causes {' and '.join(map(str, numbers))}"


def name_whatif(number: int, edit: str) -> tuple[str, str]:
    """Return the command that replays a step without a cause, and what it tells."""
    article = "that" if edit.startswith("--steps") else "a"
    return f"whatif PATH {edit}", f"{article} step without cause {number}"
