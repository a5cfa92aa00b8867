"""Several flight recorder dumps of one rank: the newest counts, the oldest shows what moved.

Of dumps that end with the same call, as a pickle and JSON of one moment do, the fuller is read.
"""

from collections import Counter, defaultdict

from htk.base.mappings import Fields
from htk.quantities.measures.call_history import RECORDER

Rows = list[Fields]


def newest_polls(records: Rows, states: Rows) -> tuple[Rows, Rows]:
    """Return the rows of each rank's newest dump, its records numbered as that dump does.

    Opened together, the dumps of one rank are cycles, and the numbers of records continue.
    """
    held = Counter((row["rank"], row["cycle"]) for row in records)
    newest: dict[int, tuple[int, int, int]] = {}
    for (rank, cycle), enqueued in _find_last_enqueued(records, states).items():
        fullness = (enqueued, held[rank, cycle], cycle)
        newest[rank] = max(newest.get(rank, (-1, -1, -1)), fullness)
    before: dict[int, int] = defaultdict(int)
    for row in records:
        before[row["rank"]] += row["cycle"] < newest[row["rank"]][-1]
    kept = [r for r in records if r["cycle"] == newest[r["rank"]][-1]]
    for row in kept:
        if row["event"] is not None:
            row["event"] -= before[row["rank"]]
    return kept, [s for s in states if s["cycle"] == newest[s["rank"]][-1]]


def moved_between_polls(records: Rows, states: Rows) -> dict[int, bool]:
    """Return whether each rank with several dumps enqueued or completed more between them."""
    progress: dict[tuple[int, int], dict[tuple[str, str], int]] = defaultdict(dict)
    for row in states:
        for counter in ("last_enqueued", "last_completed"):
            key = (row["group"] or "", counter)
            progress[row["rank"], row["cycle"]][key] = row[counter] or 0
    for poll, enqueued in _find_last_enqueued(records, states).items():
        progress[poll]["", "enqueue_ns"] = enqueued
    polls: dict[int, list[dict[tuple[str, str], int]]] = defaultdict(list)
    for (rank, _), counters in sorted(progress.items()):
        polls[rank].append(counters)
    return {
        rank: any(_is_different(dumps[0], other) for other in dumps[1:])
        for rank, dumps in polls.items()
        if len(dumps) > 1
    }


def _is_different(earlier: dict[tuple[str, str], int], later: dict[tuple[str, str], int]) -> bool:
    """Return whether a counter that both dumps have differs: what one leaves out tells nothing."""
    return any(earlier[counter] != later[counter] for counter in earlier.keys() & later.keys())


def _find_last_enqueued(records: Rows, states: Rows) -> dict[tuple[int, int], int]:
    """Return when the last call of each dump was enqueued, in ns, by rank and cycle (0: unknown). A
    watchdog's times do not count: they are only as exact as it polls, and are no dump's."""
    last = {(s["rank"], s["cycle"]): 0 for s in states}
    for row in records:
        poll = (row["rank"], row["cycle"])
        last[poll] = max(last.get(poll, 0), (row["source"] == RECORDER and row["enqueue_ns"]) or 0)
    return last
