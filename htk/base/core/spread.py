"""How a question spreads over ranks: what its answer is made of, and how parts become the whole.

by_rank         a rank's rows come from that rank's files alone
by_key          parts made of some ranks merge into the answer exactly
by_group        rows of a process group come from its own calls, on whatever ranks
at_collectives  ranks are worked on by themselves, from one collective to the next
two_rounds      a rank's rows come from its files and from what all ranks' collectives and windows
                told first; what it would gain is replayed of the ranks that stand for all
whole           everything at once
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from htk.base.mappings import Facts, Fields

Word = Literal["by_rank", "by_key", "by_group", "at_collectives", "two_rounds", "whole"]


@dataclass(frozen=True)
class SpreadLabel:
    """What an answer is made of, under those options for which it holds."""

    word: Word
    when: Mapping[str, tuple[object, ...]] = field(default_factory=dict, kw_only=True)

    def holds(self, options: Mapping[str, object]) -> bool:
        """Return whether it holds under these options, defaults filled in."""
        return all(options.get(name) in values for name, values in self.when.items())


@dataclass(frozen=True)
class ByRank(SpreadLabel):
    """Rows of ranks are put one after the other.

    Facts of the coverage in `totals` add up over ranks, and so do those named in `shares`, 100
    times the first of the two over the second; all others are the same for each rank.
    """

    word: Word = field(default="by_rank", init=False)
    totals: tuple[str, ...] = field(default=(), kw_only=True)
    shares: Mapping[str, tuple[str, str]] = field(default_factory=dict, kw_only=True)

    def merged_facts(self, parts: Sequence[Facts]) -> Fields | None:
        """Return the facts of the whole; None where those of the parts do not merge."""
        names = dict.fromkeys(name for facts in parts for name in facts)
        if any(name not in facts for facts in parts for name in names):
            return None
        merged: Fields = {}
        for name in names:
            values = [facts[name] for facts in parts]
            if name in self.totals:
                merged[name] = _add_values(values)
            elif name in self.shares:
                merged[name] = None  # keeps its position
            elif all(value == values[0] for value in values):
                merged[name] = values[0]
            else:
                return None
        for name, (part, total) in self.shares.items():
            if name in merged:
                merged[name] = share_pct(merged[part], merged[total])
        return merged


@dataclass(frozen=True)
class ByKey(SpreadLabel):
    """`part` makes of the tables of some ranks what `finish` makes the answer of.

    Parts are put one after the other in the order of ranks before they are finished; the analysis
    is `finish(part(all tables))`, so that there is one way to the answer.
    """

    word: Word = field(default="by_key", init=False)
    part: Callable[..., pa.Table] = field(kw_only=True)
    finish: Callable[..., pa.Table] = field(kw_only=True)


@dataclass(frozen=True)
class AtCollectives(SpreadLabel):
    """The critical path of a step is cut where ranks meet: `finish` makes the answer of it."""

    word: Word = field(default="at_collectives", init=False)
    finish: Callable[..., pa.Table] = field(kw_only=True)


BY_RANK = ByRank()
WHOLE = SpreadLabel("whole")
BY_GROUP = SpreadLabel("by_group")
TWO_ROUNDS = SpreadLabel("two_rounds")


def share_pct(part: int, total: int) -> float | None:
    """Return 100 times part over total, to two digits; None of nothing."""
    return round(100 * part / total, 2) if total else None


def _add_values(values: list[Any]) -> Any:
    """Return the sum of numbers; of mappings the sum of each entry, in the order of the first."""
    if not isinstance(values[0], dict):
        return sum(values)
    names = dict.fromkeys(name for value in values for name in value)
    return {name: sum(value.get(name, 0) for value in values) for name in names}
