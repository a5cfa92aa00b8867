"""Activations that live otherwise: a pass worked by hand, and what must hold of any."""

import random

import numpy as np

from htk.quantities.measures.memory_lifetimes import (
    MemoryEvents,
    offload_activations,
    recompute_activations,
)

# Two passes: a, b, c, d are activations, x is not; released the other way round.
FORWARD = [("a", 4), ("b", 4), ("x", 9), ("c", 4), ("d", 4)]
BACKWARD = ["d", "c", "x", "b", "a"]


def _events(passes: int) -> tuple[MemoryEvents, np.ndarray, list[str]]:
    size_of = dict(FORWARD)
    listed = []
    for k in range(passes):
        listed += [(f"{name}{k}", size) for name, size in FORWARD]
        listed += [(f"{name}{k}", -size_of[name]) for name in BACKWARD]
    names = sorted({name for name, _ in listed})
    block = np.array([names.index(name) for name, _ in listed])
    activation = np.array([not name.startswith("x") for name, _ in listed])
    return MemoryEvents(block, np.array([size for _, size in listed])), activation, names


def _words(events: MemoryEvents, names: list[str]) -> str:
    pairs = zip(events.block.tolist(), events.size.tolist(), strict=True)
    return " ".join(f"{'+' if size > 0 else '-'}{names[block]}" for block, size in pairs)


def _peak(events: MemoryEvents) -> int:
    return int(np.cumsum(events.size).max())


def test_what_is_computed_again_is_free_between() -> None:
    """Two segments, a and b, c and d; each keeps its first and has the other again in time."""
    events, activation, names = _events(1)
    again = recompute_activations(events, activation, 2)
    assert _words(again, names) == ("+a0 +b0 -b0 +x0 +c0 +d0 -d0 +d0 -d0 -c0 -x0 +b0 -b0 -a0")


def test_what_waits_on_the_host_comes_a_segment_ahead() -> None:
    events, activation, names = _events(1)
    away = offload_activations(events, activation, 2)
    assert _words(away, names) == (
        "+a0 +b0 -a0 -b0 +x0 +c0 +d0 -c0 -d0 +a0 +b0 +c0 +d0 -d0 -c0 -x0 -b0 -a0"
    )


def test_each_pass_is_by_itself() -> None:
    one, two = _events(1), _events(2)
    once = _words(recompute_activations(one[0], one[1], 2), one[2])
    twice = _words(recompute_activations(two[0], two[1], 2), two[2])
    assert twice == f"{once} {once.replace('0', '1')}"


def test_whatever_the_events_each_block_is_taken_and_given_back_in_turn() -> None:
    draw = random.Random(5)
    for _ in range(60):
        forward = [(f"{k}", draw.randint(1, 9)) for k in range(draw.randint(1, 30))]
        backward = list(reversed(forward))
        for _ in range(draw.randint(0, 5)):  # not quite the other way round
            i = draw.randrange(len(backward))
            j = draw.randrange(len(backward))
            backward[i], backward[j] = backward[j], backward[i]
        block = np.array([int(name) for name, _ in [*forward, *backward]])
        size = np.array([s for _, s in forward] + [-s for _, s in backward])
        events = MemoryEvents(block, size)
        every = np.ones(len(events), bool)
        for edit in (recompute_activations, offload_activations):
            edited = edit(events, every, draw.randint(1, 8))
            held = np.zeros(len(forward))
            for b, s in zip(edited.block.tolist(), edited.size.tolist(), strict=True):
                assert held[b] == (0 if s > 0 else -s), "taken when free, given back when held"
                held[b] += s
            assert not held.any()
            assert _peak(edited) <= _peak(events)


def test_nothing_of_that_kind_changes_nothing() -> None:
    events, activation, names = _events(1)
    none = np.zeros(len(activation), bool)
    assert _words(recompute_activations(events, none, 4), names) == _words(events, names)
