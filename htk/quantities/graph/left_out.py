"""Ranks that a graph leaves out, for which its collectives still wait.

When each member of a collective arrived is known of all ranks. A rank that is left out follows one
of the graph, its leader: a member of the same collective with the same role. It arrives as long
after its leader as it did in the recording, so that an edit which makes the leader faster or slower
does so to those that follow it. The offset is that of the very call, to the leader's own arrival:
it holds what the follower was late by then, however it had become late, and does not add up over
collectives. Who came before its leader is not waited for.
"""

from dataclasses import dataclass

from htk.base.columns.groups import row_of
from htk.base.columns.types import NO_TIME, Ints, take_or
from htk.base.mappings import NamedTables, ReplacedTables


@dataclass(frozen=True)
class LeftOut:
    """The latest arrivals of ranks that are left out: a row for each collective and leader."""

    match: Ints
    leader: Ints  # a rank of the graph
    arrived_ns: Ints  # the latest of those that follow it, on aligned clocks
    ranks: int  # of the whole job, with those of the graph
    windows: NamedTables  # steps and recordings of all ranks, and their clocks

    def latest(self, match: Ints, rank: Ints) -> Ints:
        """Return the latest arrival of those that follow each member; NO_TIME: nobody does."""
        row = row_of([self.match, self.leader], [match, rank])
        return take_or(self.arrived_ns, row, NO_TIME)


class RepresentedTables(ReplacedTables):
    """The tables of some ranks, and what is known of those that they represent, if of any."""

    def __init__(self, tables: NamedTables, left_out: LeftOut | None) -> None:
        super().__init__(tables, {})
        self.left_out = left_out


def left_out_of(tables: NamedTables) -> LeftOut | None:
    """Return the ranks that tables leave out; None: they hold all that was recorded."""
    left_out: LeftOut | None = getattr(tables, "left_out", None)
    return left_out
