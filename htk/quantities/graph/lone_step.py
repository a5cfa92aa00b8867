"""How a step repeats on ranks of which no step before was recorded.

Nothing says when its threads were done with the step before. A thread begins the next one as long
after its last call as the step's range on the CPU leaves; a stream as soon as it is done, but where
work was recorded that had been launched earlier. The replay then finds the period, which the
recorded window, from the first GPU activity to the last, is shorter than: it lacks the time before
the first launch.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_booleans, read_lengths, read_numbers
from htk.base.columns.types import NONE, Ints
from htk.quantities.graph.edges import Edges
from htk.quantities.graph.nodes import Activities, LaunchCalls, ends_of_lanes


def repeat_lone_step(
    edges: Edges,
    annotations: pa.Table,
    activities: Activities,
    calls: LaunchCalls,
    step: tuple[int, int | None],
) -> bool:
    """Add the edges into the next step of ranks whose step before was not recorded; return whether
    none of the ranks has one."""
    pooled = edges.pooled
    followers = edges.wrap_dst
    first_call = int(edges.call_start(np.zeros(1, np.int64))[0])
    followed = followers[followers >= first_call] - first_call  # starts of calls, then their ends
    is_alone = not pooled.any("edges into calls of the next step", bool(len(followed)))
    if not len(calls.start):
        return False
    following = np.unique(calls.rank[followed % len(calls.start)])
    handed = edges.dst[edges.kind_is("handover")] - first_call
    first, last = ends_of_lanes(calls.lane)
    own = ~np.isin(first, handed) & ~np.isin(calls.rank[first], following)
    first = first[own]
    last = last[own]
    span = calls.end[last] - calls.start[first]
    rest = np.maximum(_read_range_lengths(annotations, *step, calls.rank[first]) - span, 0)
    edges.wrap(edges.call_end(last), edges.call_start(first), rest, calls.start[first] - rest)
    first, last = ends_of_lanes(activities.lane)
    unknown = ~np.isin(edges.start(first), followers) & ~np.isin(activities.rank[first], following)
    first = first[unknown]
    last = last[unknown]
    long_ago = np.full(len(first), pooled.least("call", int(calls.start.min())))
    none = np.zeros(len(first), np.int64)
    edges.wrap(edges.end(last), edges.start(first), none, long_ago)
    return is_alone


def _read_range_lengths(annotations: pa.Table, step: int, cycle: int | None, ranks: Ints) -> Ints:
    """Return how long the step's range on the CPU of each of these ranks lasts; 0: not recorded."""
    of_step = (read_numbers(annotations["step"], NONE) == step) & ~read_booleans(
        annotations["on_gpu"]
    )
    if cycle is not None:
        of_step &= read_numbers(annotations["cycle"], 0) == cycle
    rank = read_numbers(annotations["rank"], NONE)[of_step]
    length = read_lengths(annotations)[of_step]
    longest = [int(length[rank == r].max(initial=0)) for r in ranks.tolist()]  # a few threads
    return np.array(longest, np.int64)
