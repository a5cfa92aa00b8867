"""Two sequences of calls that should be one: which call of the one is which of the other.

A call is a kind and a size (-1 in either: anything) and a time. Recordings start and stop at other
moments, so calls are missing at the ends; a damaged file lacks some in the middle. What agrees
everywhere under some shift is taken as it is, among several shifts the one whose times agree best
(a program repeats itself; clocks of a cluster differ by less than a step). Else the sequences are
walked side by side, and where they part a short look ahead finds where they meet again.
"""

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import NONE, Ints, fill_none

Calls = tuple[Ints, Ints, Ints]  # kind, size, time

_MOST_SHIFTS = 4096
_PROBES = 16
_LOOK_AHEAD = 64
_ONE_CLOCK_NS = 100_000  # ends of one call on one clock lie no farther apart
_CLEARLY = 10  # times as near as the next
_AGREEING = 3  # calls in a row that show that two sequences have met again


def aligned_positions(
    base: Calls,
    other: Calls,
    steps: tuple[Ints, Ints] | None = None,
    *,
    one_clock: bool = False,
) -> Ints:
    """Place in the base of each call of the other; NONE: it has none.

    `steps`: the step of each call of both. Where all are known and some shift makes them agree,
    they tell the turn of a program that repeats itself. `one_clock`: both have the same, so that
    calls that end at one time are one, whatever their order says.
    """
    length = len(other[0])
    shift = None
    if steps is not None and min(own.min(initial=0) for own in steps) >= 0:
        highest = 1 + int(max(own.max(initial=0) for own in steps))
        numbered = [
            (np.where(calls[0] == NONE, NONE, calls[0] * highest + own), *calls[1:])
            for calls, own in zip((base, other), steps, strict=True)
        ]
        shift = _shift_by_steps(numbered[0], numbered[1], steps)
        if shift is None:
            shift = _best_shift(*numbered, one_clock=one_clock)
    if shift is None:
        shift = _best_shift(base, other, one_clock=one_clock)
    if shift is not None:
        places = np.arange(length, dtype=np.int64) + shift
        return np.where((places >= 0) & (places < len(base[0])), places, NONE)
    return _walk_calls(base, other)


def fitting_shifts(base: Calls, other: Calls) -> list[int]:
    """Return every shift under which all of the other's calls lie on the base and agree with it."""
    slack = len(base[0]) - len(other[0])
    return [s for s in range(min(slack, _MOST_SHIFTS) + 1) if _is_aligned(base, other, s)]


def _shift_by_steps(base: Calls, other: Calls, steps: tuple[Ints, Ints]) -> int | None:
    """Return the shift under which both begin a step that both have, if all calls then agree.

    The middle one of the common steps: a recording may begin or end within its first or last.
    """
    common = np.intersect1d(*steps)
    if not len(common):
        return None
    in_base, in_other = (int(np.argmax(own == common[len(common) // 2])) for own in steps)
    shift = in_base - in_other
    return shift if _agree_throughout(base, other, shift) else None


def _best_shift(base: Calls, other: Calls, *, one_clock: bool) -> int | None:
    """Return the shift under which all calls agree; None: there is none.

    Of equally long sequences it is none: ranks mostly record the same steps. Else no call of the
    shorter one is given up if that can be, and time decides. Under another shift calls may end at
    one time on one clock, which proves it.
    """
    fitting = fitting_shifts(base, other)
    best = min(fitting, key=lambda s: _measure_distance(base, other, s), default=None)
    apart = np.inf if best is None else _measure_distance(base, other, best)
    if best is not None and (not one_clock or apart <= _ONE_CLOCK_NS):
        return best
    guess = _near_in_time(base, other)
    near = [s for s in range(guess - 2, guess + 3) if _is_aligned(base, other, s)]
    nearest = min(near, key=lambda s: _measure_distance(base, other, s), default=None)
    if nearest is None or best is None:
        return best if nearest is None else nearest
    of_nearest = _measure_distance(base, other, nearest)
    proves = of_nearest <= _ONE_CLOCK_NS and _CLEARLY * of_nearest < apart
    return nearest if proves else best


def _near_in_time(base: Calls, other: Calls) -> int:
    """Return the shift that the time of the other's middle call suggests."""
    middle = len(other[2]) // 2
    time = other[2][middle]
    following = int(np.searchsorted(base[2], time))
    around = range(max(following - 1, 0), min(following + 1, len(base[2]) - 1) + 1)
    nearest = min(around, key=lambda k: abs(int(base[2][k]) - int(time)), default=0)
    return nearest - middle


def _find_overlap(base: Calls, other: Calls, shift: int) -> tuple[int, int]:
    """Return the calls of the other that lie on the base under a shift."""
    return max(0, -shift), min(len(other[0]), len(base[0]) - shift)


def _is_aligned(base: Calls, other: Calls, shift: int) -> bool:
    """All overlapping calls agree, and most of the shorter sequence overlaps."""
    first, last = _find_overlap(base, other, shift)
    mostly = 2 * (last - first) >= min(len(base[0]), len(other[0]))
    return mostly and _agree_throughout(base, other, shift)


def _agree_throughout(base: Calls, other: Calls, shift: int) -> bool:
    """Return whether all calls that overlap under a shift agree."""
    first, last = _find_overlap(base, other, shift)
    if first >= last:
        return False
    probes = np.linspace(first, last - 1, min(_PROBES, last - first)).astype(np.int64)
    if not _compare_calls(base, other, probes + shift, probes).all():
        return False
    return bool(_compare_runs(base, other, first + shift, first, last - first).all())


def _measure_distance(base: Calls, other: Calls, shift: int) -> float:
    first, last = _find_overlap(base, other, shift)
    probes = np.linspace(first, last - 1, min(64, last - first)).astype(np.int64)
    return float(np.median(np.abs(base[2][probes + shift] - other[2][probes])))


def _compare_calls(base: Calls, other: Calls, i: Ints, j: Ints) -> NDArray[np.bool_]:
    kind = base[0][i]
    size = base[1][i]
    kinds = other[0][j]
    sizes = other[1][j]
    alike: NDArray[np.bool_] = (kind == kinds) | (kind == NONE) | (kinds == NONE)
    alike &= (size == sizes) | (size == NONE) | (sizes == NONE)
    return alike


def _compare_runs(base: Calls, other: Calls, i: int, j: int, count: int) -> NDArray[np.bool_]:
    return _compare_calls(base, other, np.arange(i, i + count), np.arange(j, j + count))


def _walk_calls(base: Calls, other: Calls) -> Ints:
    """Side by side from the start; what does not meet again within the look-ahead is skipped."""
    places = fill_none(len(other[0]))
    i = j = 0
    while i < len(base[0]) and j < len(other[0]):  # once for each place where they part
        run = _agreeing_run(base, other, i, j)
        places[j : j + run] = np.arange(i, i + run)
        i = i + run
        j = j + run
        skipped = _find_meeting(base, other, i, j)
        i = i + skipped[0]
        j = j + skipped[1]
    return places


def _agreeing_run(base: Calls, other: Calls, i: int, j: int) -> int:
    """Return how many calls agree from here on."""
    run = 0
    step = 64
    left = min(len(base[0]) - i, len(other[0]) - j)
    while run < left:
        count = min(step, left - run)
        agree = _compare_runs(base, other, i + run, j + run, count)
        if not agree.all():
            return run + int(np.argmin(agree))
        run = run + count
        step = step * 2
    return run


def _find_meeting(base: Calls, other: Calls, i: int, j: int) -> tuple[int, int]:
    """Return how many calls of each to skip until they agree again; one of each if they do not."""
    for total in range(1, _LOOK_AHEAD):
        for skip in range(total + 1):
            a = i + skip
            b = j + total - skip
            count = min(_AGREEING, len(base[0]) - a, len(other[0]) - b)
            if count > 0 and _compare_runs(base, other, a, b, count).all():
                return skip, total - skip
    return 1, 1
