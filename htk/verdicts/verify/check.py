"""One check: its name, what it compares, and how."""

from collections.abc import Callable
from dataclasses import dataclass

from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import Tally


@dataclass(frozen=True)
class Check:
    """A comparison of answers, made by a function that tallies what it compares."""

    name: str
    compared: str
    function: Callable[[Subject, Tally], None]
