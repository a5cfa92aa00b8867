"""Which call encloses which: the parent and the depth of every span of a thread."""

import numpy as np
from numpy.typing import NDArray

from htk.engine import core, engine

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


def nest(threads: Int32, starts: Int64, ends: Int64) -> tuple[Int32, Int32]:
    """The row of each span's parent (-1: none), and its depth (0: no parent).

    The parent is the span of the same thread that began last before it and has not ended when it
    begins. Of two that begin together the longer is the parent, of two alike the earlier row. A
    child that, by rounding, ends after its parent is a child all the same. A span without length
    encloses nothing, and may begin where its parent ends: in whole microseconds `as_strided` takes
    no time at the end of the `transpose` that calls it.
    """
    threads = np.ascontiguousarray(threads, np.int32)
    starts = np.ascontiguousarray(starts, np.int64)
    ends = np.ascontiguousarray(ends, np.int64)
    compiled = core() if engine() == "compiled" else None
    if compiled is None:
        return nest_pure(threads, starts, ends)
    parents, depths = compiled.nest(threads, starts, ends)
    return np.frombuffer(parents, np.int32), np.frombuffer(depths, np.int32)


def nest_pure(threads: Int32, starts: Int64, ends: Int64) -> tuple[Int32, Int32]:
    """`nest` without the compiled core."""
    order = np.lexsort((-ends, starts, threads))  # stable: equal spans stay in row order
    parents = np.full(len(threads), -1, np.int32)
    depths = np.zeros(len(threads), np.int32)
    found: list[int] = []
    deep: list[int] = []
    open_spans: list[tuple[int, int, int, int, bool]] = []  # thread, end, row, depth; any length
    # One span after the other: what is open depends on all that came before.
    spans = zip(
        order.tolist(),
        threads[order].tolist(),
        starts[order].tolist(),
        ends[order].tolist(),
        strict=True,
    )
    for row, thread, start, end in spans:
        instant = start == end
        while open_spans and (open_spans[-1][0] != thread or open_spans[-1][1] <= start):
            if instant and open_spans[-1][:2] == (thread, start) and open_spans[-1][4]:
                break
            open_spans.pop()
        depth = open_spans[-1][3] + 1 if open_spans else 0
        found.append(open_spans[-1][2] if open_spans else -1)
        deep.append(depth)
        open_spans.append((thread, end, row, depth, end > start))
    parents[order] = found
    depths[order] = deep
    return parents, depths
