"""Which of several calls a rank would have come to next, by what it and others called before."""

from collections.abc import Iterable, Sequence

from htk.quantities.measures.call_history import CallSite, Histories
from htk.quantities.measures.call_patterns import Kind, group_kind

_LONGEST_CONTEXT = 256  # calls compared: several steps of a training loop
_MOST_PROGRAMS = 16  # ranks whose programs are looked through
_NEVER = 1 << 62

# The kind of its group, and for a message how far the peer is and whether it is sent there.
Shape = tuple[Kind, int, bool]


def in_order_of_program(
    history: Histories, rank: int, sites: Sequence[CallSite], others: Iterable[int]
) -> list[CallSite]:
    """Return calls in the order in which a rank would have come to them.

    Where the calls that it made last were made before, by itself or by one of the others, what
    followed then is what would have followed now: the longest such stretch decides.

        it:     a b c a b        others:   a b c a b c d      it would have come to c, then d
    """
    if len(sites) < 2:
        return list(sites)
    following = _find_following(history, rank, others)
    first = {shape: k for k, shape in reversed(list(enumerate(following)))}
    return sorted(sites, key=lambda site: first.get(_describe_shape(history, rank, site), _NEVER))


def _find_following(history: Histories, rank: int, others: Iterable[int]) -> list[Shape]:
    """Return what followed the longest stretch of calls that is like this rank's last ones."""
    own = _list_program(history, rank)
    if not own:
        return []
    longest = (0, False)
    following = own[:0]
    for other in [rank, *[r for r in others if r != rank][:_MOST_PROGRAMS]]:
        program = own if other == rank else _list_program(history, other)
        for end in range(len(program) - 1, 0, -1):
            alike = _common_end(own, program[:end]) if program[end - 1] == own[-1] else 0
            from_the_start = alike == end == len(own)
            if (alike, from_the_start) > longest:
                longest = (alike, from_the_start)
                following = program[end:]
    return following


def _common_end(own: list[Shape], other: list[Shape]) -> int:
    """Return how many calls two programs have in common at their ends."""
    pairs = zip(reversed(own[-_LONGEST_CONTEXT:]), reversed(other), strict=False)
    count = 0
    for ours, theirs in pairs:
        if ours != theirs:
            break
        count += 1
    return count


def _list_program(history: Histories, rank: int) -> list[Shape]:
    return [_describe_shape(history, rank, call.call_site) for call in history.calls.get(rank, ())]


def _describe_shape(history: Histories, rank: int, site: CallSite) -> Shape:
    kind = group_kind(history, site.group)
    if site.pair is None:
        return kind, 0, False
    sender, receiver = site.pair
    is_sent = sender == rank
    return kind, (receiver if is_sent else sender) - rank, is_sent
