"""How a step repeats when no other step was recorded.

Nothing says when its threads and streams were done with the step before. A thread begins the next
one as long after its last call as the step's range on the CPU leaves; a stream as soon as it is
done. The replay then finds the period, which the recorded window, from the first GPU activity to
the last, is shorter than: it lacks the time before the first launch.
"""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers, read_lengths, truths
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
    """Add the edges into the next step, and return whether there were none."""
    pooled = edges.pooled
    if pooled.any("edges into the next step", bool(len(edges.wrap_src))) or not len(calls.start):
        return False
    handed = edges.dst[edges.kind_is("handover")] - edges.call_start(np.zeros(1, np.int64))[0]
    first, last = ends_of_lanes(calls.lane)
    own = ~np.isin(first, handed)
    first = first[own]
    last = last[own]
    span = calls.end[last] - calls.start[first]
    rest = np.maximum(_lengths(annotations, *step, calls.rank[first]) - span, 0)
    edges.wrap(edges.call_end(last), edges.call_start(first), rest, calls.start[first] - rest)
    first, last = ends_of_lanes(activities.lane)
    long_ago = np.full(len(first), pooled.least("call", int(calls.start.min())))
    none = np.zeros(len(first), np.int64)
    edges.wrap(edges.end(last), edges.start(first), none, long_ago)
    return True


def _lengths(annotations: pa.Table, step: int, cycle: int | None, ranks: Ints) -> Ints:
    """Return how long the step's range on the CPU of each of these ranks lasts; 0: not recorded."""
    of_step = (numbers(annotations["step"], NONE) == step) & ~truths(annotations["on_gpu"])
    if cycle is not None:
        of_step &= numbers(annotations["cycle"], 0) == cycle
    rank = numbers(annotations["rank"], NONE)[of_step]
    length = read_lengths(annotations)[of_step]
    longest = [int(length[rank == r].max(initial=0)) for r in ranks.tolist()]  # a few threads
    return np.array(longest, np.int64)
