"""How long bytes take that go in chunks over links which others share. The simulator's own.

Each chunk leaves a link after the one before it, and a hop later it can go on from there. No sum of
latency and bytes over bandwidth is assumed: what of the one hides behind the other is what comes of
the chunks, so that a prediction which adds them up, or does not, can be proved wrong.
"""

from dataclasses import dataclass

_FOLLOWED = 600  # chunks one by one; by then all have come to an even pace
_PACE = _FOLLOWED // 2  # chunks over which that pace is taken


@dataclass(frozen=True)
class Link:
    """What a channel has of a link."""

    rate: float  # bytes per ns
    hop_ns: float  # from the begin of a piece without bytes until it can go on
    busy_ns: float = 0.0  # of these, those in which the sender can do nothing else


def circulated_ns(links: list[Link], piece: float, moves: int, slices: int) -> float:
    """Return the time in which every rank of a ring has passed on so many pieces.

    `links`: of the ranks of one node, each to the next rank; all nodes are alike, so that the last
    leads to the first of another. A rank sends a piece when it has sent the one before and has
    received it, `slices` sends ago: those that it began with are its own.
    """
    free = [0.0] * len(links)
    came = [[0.0] * len(links)] * slices
    ends = []
    for _ in range(min(moves, _FOLLOWED)):
        received = came.pop(0)
        free = [
            max(sent, there) + link.busy_ns + piece / link.rate
            for sent, there, link in zip(free, received, links, strict=True)
        ]
        there = [sent + link.hop_ns - link.busy_ns for sent, link in zip(free, links, strict=True)]
        came.append(there[-1:] + there[:-1])  # with the next rank, in the next node too
        ends.append(max(there))
    return _continue_evenly(ends, moves)


def piped_ns(links: list[Link], piece: float, pieces: int) -> float:
    """Return the time in which all pieces have gone down a chain of links, one after another."""
    free = [0.0] * len(links)
    ends = []
    for _ in range(min(pieces, _FOLLOWED)):
        there = 0.0
        for hop, link in enumerate(links):
            free[hop] = max(free[hop], there) + piece / link.rate
            there = free[hop] + link.hop_ns
        ends.append(there)
    return _continue_evenly(ends, pieces)


def scattered_ns(counts: list[tuple[Link, int]], piece: float, post_ns: float) -> float:
    """Return the time until a rank's messages are all there, so many over each of its links.

    They are posted one after another; each link carries its own.
    """
    posted = end = 0.0
    for link, count in counts:
        free = 0.0
        for _ in range(count):
            free = max(free, posted) + piece / link.rate
            posted += post_ns
        end = max(end, free + link.hop_ns)
    return end


def _continue_evenly(ends: list[float], count: int) -> float:
    """Return when the last of `count` ends, of which some were followed."""
    further = count - len(ends)
    if not further:
        return ends[-1]
    return ends[-1] + further * (ends[-1] - ends[-1 - _PACE]) / _PACE
