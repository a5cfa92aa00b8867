"""What one check compared, and what differed."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any


class NotApplicable(Exception):
    """A check has nothing to compare here, and why."""


@dataclass
class Tally:
    """Values compared by one check, and the first differences."""

    compared: int = 0
    different: int = 0
    first: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what the check could not look at, and why

    def equal(self, what: str, answered: object, expected: object) -> None:
        """Compare one value with what it should be."""
        self.compared += 1
        if answered == expected:
            return
        self.different += 1
        if len(self.first) < 3:
            self.first.append(f"{what}: {_describe_difference(answered, expected)}")

    def rows(
        self,
        what: str,
        answered: Mapping[Any, Mapping[str, object]],
        expected: Mapping[Any, Mapping[str, object]],
    ) -> None:
        """Compare rows by their keys, value by value; a row that one side lacks is a difference."""
        for key in dict.fromkeys([*expected, *answered]):
            label = f"{what} of {_label_key(key)}"
            if key not in answered:
                self.equal(label, "no row", "one")
            elif key not in expected:
                self.equal(label, "a row", "none")
            else:
                for name, value in expected[key].items():
                    self.equal(f"{label}, {name}", answered[key][name], value)

    @property
    def finding(self) -> str:
        """Return the outcome in words."""
        if not self.different:
            return f"{self.compared:,} values"
        return f"{self.different:,} of {self.compared:,} values: " + "; ".join(self.first)


def _describe_difference(answered: object, expected: object) -> str:
    if isinstance(answered, int) and isinstance(expected, int):
        return f"{answered:,} against {expected:,}, differs by {answered - expected:+,}"
    return f"{answered} against {expected}"


def _label_key(key: Hashable) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return " ".join("–" if part is None else str(part) for part in parts)
