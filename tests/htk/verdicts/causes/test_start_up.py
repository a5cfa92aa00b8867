"""Waits for ranks whose recording had not begun: for their start-up, or for what nothing tells."""

import numpy as np

from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.verdicts.causes.advice.start_up import start_up_waits
from tests.tables import make

# Rank, aligned start; all end at 700. Rank 2 comes last to the first collective, rank 0 to the
# second, which no recording begins after.
FIRST = ((0, 100), (1, 300), (2, 600))
SECOND = ((0, 900), (1, 800), (2, 850))
OFFSET = {0: 0, 1: 0, 2: 5000}  # rank 2's clock is so far behind


def calls() -> CollectiveCalls:
    rows = [*FIRST, *SECOND]
    collectives = [
        {"rank": r, "start_ns": s - OFFSET[r], "end_ns": (700 if s < 700 else 950) - OFFSET[r],
         "source": "profiler", "group": "0", "type": "all_gather"}
        for r, s in rows
    ]  # fmt: skip
    matches = [
        {"match": n // 3, "before_window": n < 3, "clock_offset_ns": OFFSET[r]}
        for n, (r, _) in enumerate(rows)
    ]
    ranks = [{"rank": r} for r in OFFSET]
    return CollectiveCalls.of(
        make("collectives", collectives), make("aligned_matches", matches), make("ranks", ranks)
    )


def stall(rank: int, cause: str, start: int, end: int) -> dict[str, object]:
    shift = OFFSET[rank]
    return {"rank": rank, "cause": cause, "start_ns": start - shift, "end_ns": end - shift}


def test_what_ranks_wait_while_the_last_one_starts_up() -> None:
    """Rank 2 creates its context until 400, and loads a module from 450 to 500: rank 0 waits 350 of
    its 500 for that, rank 1 150 of 300. What rank 1 does is nobody's wait."""
    stalls = [
        stall(1, "host_start_up", 0, 700),
        stall(2, "host_start_up", 0, 400),
        stall(2, "host_data_loading", 400, 450),
        stall(2, "host_lazy_loading", 450, 500),
        stall(2, "host_start_up", 820, 840),
    ]
    waits = start_up_waits(calls(), np.array([500, 300, 0, 0, 100, 50]), make("stalls", stalls))
    assert (waits.row.tolist(), waits.rank.tolist()) == ([2], [2])
    assert waits.wait_ns.tolist() == [350 + 150]
    assert waits.unrecorded_ns == 150 + 150


def test_no_more_than_is_exposed() -> None:
    stalls = make("stalls", [stall(2, "host_start_up", 0, 400)])
    waits = start_up_waits(calls(), np.array([120, 60, 0, 0, 100, 50]), stalls)
    assert (waits.wait_ns.tolist(), waits.unrecorded_ns) == ([120 + 60], 0)


def test_a_start_that_nothing_tells_is_nobody_s() -> None:
    waits = start_up_waits(calls(), np.array([500, 300, 0, 0, 100, 50]), make("stalls", []))
    assert (waits.row.tolist(), waits.unrecorded_ns) == ([], 800)
