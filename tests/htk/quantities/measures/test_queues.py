"""Lengths of queues against counting, at each change, what is launched and has not started."""

import numpy as np
import pyarrow as pa

from htk.base.columns.groups import Groups
from htk.quantities.measures.queues import QueueLengths, Waiting


def test_lengths_are_what_counting_gives() -> None:
    """300 activities of 90 launches on three streams of two ranks; some before their launch."""
    source = np.random.default_rng(5)
    launch = source.integers(0, 90, 300)
    launched = source.integers(0, 1_000, 90)[launch]
    start = launched + source.integers(-5, 400, 300)
    rank, stream = (launch % 2).astype(np.int32), source.integers(7, 10, 300)
    zero = np.zeros(300, np.int32)
    kernels = pa.table(
        {"rank": rank, "cycle": zero, "device": zero, "stream": stream, "start_ns": start}
    )
    links = pa.table({"launch_row": launch, "launch_start_ns": launched})
    waiting = Waiting.from_kernels(kernels, links, per_stream=True)
    groups = Groups.by_keys(waiting.key)
    lengths = QueueLengths.from_waiting(waiting, groups)
    assert len(groups) == 6
    compared = 0
    for queue, (own_rank, _, _, own_stream) in enumerate(groups.keys.tolist()):
        own = (rank == own_rank) & (stream == own_stream)
        calls = [
            (int(launched[launch == call][0]), int(start[own & (launch == call)].min()))
            for call in np.unique(launch[own]).tolist()
        ]
        rows = np.flatnonzero(lengths.queue == queue)
        times = lengths.time[rows]
        for time in np.unique(times).tolist():
            waits = sum(begun <= time < max(ended, begun) for begun, ended in calls)
            assert lengths.length[rows[times == time][-1]] == waits
            compared += 1
        assert lengths.length[rows[-1]] == 0
    assert compared > 300 and lengths.length.max() > 3
