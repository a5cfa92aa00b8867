"""Figures of a step that are taken over all ranks: quantiles, flags, arrivals at collectives.

A graph of all ranks takes them from their rows (`Pooled`). Graphs of some ranks each hear them from
the others: each part first says what it has (`Heard`), and is then made with what all have said
(`Told`), so that its figures are those of one graph of all. Of values that a quantile is asked of
goes how often each occurs, of collectives a row each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints, Mask

_T = TypeVar("_T")

_LOW = 0.1  # quantile that counts as the least
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Counted:
    """How often each of some values occurs."""

    values: Ints  # ascending, each once
    count: Ints

    @classmethod
    def from_values(cls, values: Ints) -> "Counted":
        return cls(*np.unique(values, return_counts=True))

    @classmethod
    def together(cls, parts: Iterable["Counted"]) -> "Counted":
        both = [(part.values, part.count) for part in parts]
        values, count = (np.concatenate([_NONE, *column]) for column in zip(*both, strict=True))
        groups = Groups.by_keys(values)
        return cls(groups.keys[:, 0], groups.sum(count))

    def quantile(self, share: float) -> float:
        """Return what NumPy does of all values, linearly interpolated; 0 of none."""
        many = int(self.count.sum())
        if not many:
            return 0.0
        position = share * (many - 1)
        below = int(position)
        two = np.searchsorted(np.cumsum(self.count), [below, min(below + 1, many - 1)], "right")
        return float(np.quantile(self.values[two], position - below))


class Pooled:
    """Takes figures over all ranks from their values, which are all at hand."""

    def low(self, what: str, values: Ints) -> int:
        """Return the least of a figure, without outliers; 0: nobody has one."""
        return int(np.quantile(values, _LOW)) if len(values) else 0

    def middle(self, what: str, values: Ints) -> int:
        """Return the median of a figure; 0: nobody has one."""
        return int(np.median(values)) if len(values) else 0

    def least(self, what: str, value: int) -> int:
        """Return the least of what any rank has."""
        return value

    def any(self, what: str, has: bool) -> bool:
        """Return whether any rank has it."""
        return has

    def tally(self, what: str, own: Mapping[str, int]) -> Mapping[str, int]:
        """Return counts by name, added up over ranks."""
        return own

    def meets(self, match: Ints, members: Ints) -> Mask:
        """Return whether a collective has several members in the step."""
        return np.asarray(members > 1)

    def arrived(self, match: Ints, last: Ints) -> Ints:
        """Return when the last member of each collective arrived."""
        return last


ALL_AT_HAND = Pooled()


@dataclass
class Heard(Pooled):
    """Keeps what some ranks have to tell."""

    figures: dict[str, Counted] = field(default_factory=dict)
    leasts: dict[str, int] = field(default_factory=dict)
    flags: dict[str, bool] = field(default_factory=dict)
    tallies: dict[str, Mapping[str, int]] = field(default_factory=dict)
    match: Ints = field(default_factory=_NONE.copy)  # collectives, those of one member too
    members: Ints = field(default_factory=_NONE.copy)
    last: Ints = field(default_factory=_NONE.copy)

    def low(self, what: str, values: Ints) -> int:
        self.figures[what] = Counted.from_values(values)
        return super().low(what, values)

    def middle(self, what: str, values: Ints) -> int:
        self.figures[what] = Counted.from_values(values)
        return super().middle(what, values)

    def least(self, what: str, value: int) -> int:
        self.leasts[what] = value
        return value

    def any(self, what: str, has: bool) -> bool:
        self.flags[what] = has
        return has

    def tally(self, what: str, own: Mapping[str, int]) -> Mapping[str, int]:
        self.tallies[what] = own
        return own

    def meets(self, match: Ints, members: Ints) -> Mask:
        self.match = match
        self.members = members
        return np.ones(len(match), bool)  # so that all arrivals are told

    def arrived(self, match: Ints, last: Ints) -> Ints:
        self.last = last
        return last


@dataclass(frozen=True)
class Told(Pooled):
    """Figures of all ranks, put together of what the parts told, for graphs of some ranks."""

    lows: Mapping[str, int]
    middles: Mapping[str, int]
    leasts: Mapping[str, int]
    flags: Mapping[str, bool]
    tallies: Mapping[str, Mapping[str, int]]
    match: Ints  # of collectives with several members, ascending
    last: Ints

    @classmethod
    def by(cls, heard: Sequence[Heard]) -> "Told":
        figures = _merge_by_name([part.figures for part in heard], Counted.together)
        match = np.concatenate([part.match for part in heard])
        collectives = Groups.by_keys(match)
        several = collectives.sum(np.concatenate([part.members for part in heard])) > 1
        last = collectives.max(np.concatenate([part.last for part in heard]))
        return cls(
            {what: int(values.quantile(_LOW)) for what, values in figures.items()},
            {what: int(values.quantile(0.5)) for what, values in figures.items()},
            _merge_by_name([part.leasts for part in heard], min),
            _merge_by_name([part.flags for part in heard], any),
            _merge_by_name([part.tallies for part in heard], _add_tallies),
            collectives.keys[:, 0][several],
            last[several],
        )

    def for_part(self, heard: Heard) -> "Told":
        """Return these figures with the collectives alone that a part has told of."""
        own = np.isin(self.match, heard.match)
        return replace(self, match=self.match[own], last=self.last[own])

    def low(self, what: str, values: Ints) -> int:
        return self.lows[what]

    def middle(self, what: str, values: Ints) -> int:
        return self.middles[what]

    def least(self, what: str, value: int) -> int:
        return self.leasts[what]

    def any(self, what: str, has: bool) -> bool:
        return self.flags[what]

    def tally(self, what: str, own: Mapping[str, int]) -> Mapping[str, int]:
        return self.tallies[what]

    def meets(self, match: Ints, members: Ints) -> Mask:
        return np.isin(match, self.match)

    def arrived(self, match: Ints, last: Ints) -> Ints:
        return self.last[np.searchsorted(self.match, match)]


def _merge_by_name(
    parts: Sequence[Mapping[str, _T]], merge: Callable[[list[_T]], _T]
) -> dict[str, _T]:
    """Return what several parts have by name, merged name by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: merge([part[name] for part in parts if name in part]) for name in names}


def _add_tallies(tallies: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    names = dict.fromkeys(name for tally in tallies for name in tally)
    return {name: sum(tally.get(name, 0) for tally in tallies) for name in names}
