"""Causes in the order of what a step gains without each, and what several gain together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from htk.base.core.humanize import format_duration
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.replayed import Gain, ReplayedRecording

_SHARED = 0.2  # of a gain, that goes with causes above it, where that is said
_WORTH = 0.002  # of a step: a fault that gains less explains nothing of what is left


@dataclass(frozen=True)
class RankedCause:
    """A cause, and what replaying the recording without it gains."""

    cause: Cause
    recorded_ns: float  # of a step of one GPU
    gain: Gain | None = None  # of a step, alone; None: the recorded time is all that is known
    together_ns: int | None = None  # with all causes above it
    overlaps: str | None = None

    @property
    def weight(self) -> float:
        """What the order follows: what a step gains, or the recorded time; of causes that are no
        matter of time, -1."""
        if self.gain is not None:
            return self.gain.ns
        return -1.0 if self.cause.recorded_ns is None else self.recorded_ns


@dataclass(frozen=True)
class Ranking:
    """Causes in order, and what they leave."""

    causes: list[RankedCause]
    unexplained_ns: int = 0  # of a step: lost, and gained by no cause
    is_replayed: bool = False


Matters = Callable[[RankedCause], bool]  # whether a cause is large enough to be told


def rank_as_recorded(
    causes: Sequence[Cause], gpus_and_steps: float, matters: Matters, lost_ns: float = 0.0
) -> Ranking:
    """Return the causes of a recording that cannot be replayed; `lost_ns`: what a step lost as
    recorded, idle or waiting."""
    ranked = list(filter(matters, _as_recorded(causes, gpus_and_steps)))
    claimed = sum(row.recorded_ns for row in ranked if row.cause.is_lost)
    return Ranking(sorted(ranked, key=lambda row: -row.weight), max(round(lost_ns - claimed), 0))


def _as_recorded(causes: Sequence[Cause], gpus_and_steps: float) -> list[RankedCause]:
    return [RankedCause(cause, (cause.recorded_ns or 0) / gpus_and_steps) for cause in causes]


def rank_by_gain(
    causes: Sequence[Cause],
    replayed: ReplayedRecording,
    gpus_and_steps: float,
    matters: Matters,
    lost_ns: float,
) -> Ranking:
    """Return the causes with what a step gains without each, largest first. What does not matter
    is in no sum: together with the others is with those that are told."""
    before = _faults_worth(causes, replayed)
    ranked = []
    for row in _as_recorded(causes, gpus_and_steps):
        change = row.cause.change
        if change is None:
            ranked.append(row)
            continue
        gain = replayed.gain((change,), before if row.cause.is_bound else ())
        if gain is None or gain.ns > 0:  # None: the edit does not apply, what was recorded stays
            ranked.append(replace(row, gain=gain))
    by_gain = sorted(filter(matters, ranked), key=lambda row: -row.weight)
    rows = _with_others(by_gain, replayed)
    # Kernels that would be shorter hide less, and take no lost time away.
    ways = tuple(c.change for c in _causes_of_loss(rows) if c.change is not None)
    won_ns = replayed.lost_ns(()) - replayed.lost_ns(ways)
    claimed = sum(row.recorded_ns for row in rows if row.cause.is_lost and row.gain is None)
    return Ranking(rows, max(round(lost_ns - max(won_ns, 0) - claimed), 0), is_replayed=True)


def _causes_of_loss(rows: Sequence[RankedCause]) -> list[Cause]:
    replayed = [row.cause for row in rows if row.gain is not None]
    return [cause for cause in replayed if cause.is_lost or not cause.is_bound]


def _faults_worth(causes: Sequence[Cause], replayed: ReplayedRecording) -> tuple[CauseEdit, ...]:
    """Return the edits that take away the faults which cost anything: what bounds gain is told of
    the recording without these."""
    changes = [c.change for c in causes if c.change is not None and not c.is_bound]
    least = _WORTH * replayed.step_ns
    return tuple(c for c in changes if (replayed.saved_ns((c,)) or 0.0) >= least)


def _with_others(ranked: list[RankedCause], replayed: ReplayedRecording) -> list[RankedCause]:
    """Return the causes with what each gains together with those above it. Causes without a gain
    stand among them, and are counted."""
    above: tuple[CauseEdit, ...] = ()
    numbers: list[int] = []
    together = 0
    claimed = 0.0  # by the gains that were told, without what they share
    rows = []
    for number, row in enumerate(ranked, 1):
        if row.cause.change is None or row.gain is None:
            rows.append(row)
            continue
        above = (*above, row.cause.change)
        together = max(round(replayed.saved_ns(above) or 0.0), together)
        # What bounds gain is told of the recording without faults, and shares nothing with those.
        shared = max(claimed + row.gain.ns - together, 0) if numbers else 0
        claimed += row.gain.ns - shared
        words = None
        if shared >= _SHARED * row.gain.ns and shared >= _WORTH * replayed.step_ns:
            others = f"cause {numbers[0]}" if len(numbers) == 1 else "causes above it"
            words = f"{format_duration(shared)} of it goes with {others}"
        numbers.append(number)
        rows.append(replace(row, together_ns=together, overlaps=words))
    return rows
