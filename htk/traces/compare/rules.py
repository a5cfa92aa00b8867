"""Rules of a gate, such as `step_time>5%` or `each kernel>10%`."""

import re
from dataclasses import dataclass
from typing import Literal

from htk.base.core.humanize import parse_duration
from htk.base.errors import UsageError
from htk.traces.compare.items import KINDS, TRANSFER, By

Unit = Literal["%", "pp", "ns"]

PARTS: dict[str, tuple[By, str]] = {
    "step_time": ("time", "total"),
    "compute": ("time", "compute"),
    "exposed_comm": ("time", "exposed communication"),
    "exposed_copies": ("time", "exposed copies"),
    "idle": ("time", "idle"),
    "transfer": ("comm", TRANSFER),
}
_RULE = re.compile(
    r"\s*(?P<each>each\s+)?(?P<least>least\s+)?(?P<what>[^<>]+?)\s*"
    r">\s*(?P<size>\d+(?:\.\d+)?)\s*(?P<unit>%|pp|ns|us|µs|ms|s)\s*"
)
_HOW = (
    "[each] [least] WHAT>LIMIT: WHAT is "
    + ", ".join(PARTS)
    + f", or {':, '.join(KINDS[1:-1])}: or {KINDS[-1]}: with part of a name (* for anything; with "
    "'each' no name is needed); LIMIT is in %, pp (points of the step's time), ns, us, ms or s"
)


@dataclass(frozen=True)
class Rule:
    """What may not grow, and by how much."""

    text: str
    kind: By
    name: str
    limit: float
    unit: Unit
    each: bool = False  # every thing of that name by itself, not all of them added up
    least: bool = False  # over the ranks, not their mean

    @property
    def is_step(self) -> bool:
        """Whether the step is meant, as a mean over ranks."""
        return (self.kind, self.name, self.least) == (*PARTS["step_time"], False)

    @property
    def is_every_kernel(self) -> bool:
        """Whether each kernel is meant: `transfer` and `comm` judge those that communicate, whose
        own time holds what they wait for late ranks."""
        return self.each and self.kind == "kernel" and self.name == "*"

    def holds(self, name: str) -> bool:
        """Return whether a thing of that name is meant."""
        if self.kind == "time":
            return name == self.name
        return re.search(".*".join(map(re.escape, self.name.split("*"))), name) is not None


def parse_rule(text: str) -> Rule:
    """`step_time>5%`, `exposed_comm>2pp`, `each kernel>10%`, `least transfer>5%`, `idle>3ms`."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a rule; write one as {_HOW}")
    what = match["what"]
    unit = match["unit"]
    each = match["each"] is not None
    least = match["least"] is not None
    if unit == "pp" and what == "step_time":
        raise UsageError(f"{text!r}: a step is always 100 % of itself; give % or a time")
    size = float(match["size"])
    limit = size if unit in ("%", "pp") else float(parse_duration(match["size"] + unit))
    measured: Unit = "%" if unit == "%" else "pp" if unit == "pp" else "ns"
    if what in PARTS and not each:
        return Rule(text, *PARTS[what], limit, measured, each, least)
    kind, colon, name = what.partition(":")
    named = bool(colon and name) or (each and not colon)
    for candidate in KINDS:
        if candidate == kind != "time" and named:
            return Rule(text, candidate, name or "*", limit, measured, each, least)
    raise UsageError(f"{text!r} is not a rule; write one as {_HOW}")
