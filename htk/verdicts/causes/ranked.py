"""Causes in the order of what a step gains without each, and what several gain together."""

from collections.abc import Sequence
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
        """What the order follows; causes that are no matter of time come last."""
        if self.gain is not None:
            return self.gain.ns
        return -1.0 if self.cause.recorded_ns is None else self.recorded_ns


@dataclass(frozen=True)
class Ranking:
    """Causes in order, and what they leave."""

    causes: list[RankedCause]
    unexplained_ns: int | None = None  # of a step: lost, and gained by no cause


def rank_as_recorded(causes: Sequence[Cause], gpus_and_steps: float) -> Ranking:
    """Return the causes of a recording that cannot be replayed."""
    ranked = [
        RankedCause(cause, (cause.recorded_ns or 0) / gpus_and_steps, overlaps=cause.overlaps)
        for cause in causes
    ]
    return Ranking(sorted(ranked, key=lambda row: -row.weight))


def rank_by_gain(
    causes: Sequence[Cause], replayed: ReplayedRecording, gpus_and_steps: float, lost_ns: float
) -> Ranking:
    """Return the causes with what a step gains without each, largest first; `lost_ns`: what a step
    lost as recorded, idle or waiting."""
    before = _faults_worth(causes, replayed)
    ranked = []
    for row in rank_as_recorded(causes, gpus_and_steps).causes:
        change = row.cause.change
        if change is None:
            ranked.append(row)
            continue
        gain = replayed.gain((change,), before if row.cause.is_bound else ())
        if gain is None or gain.ns > 0:  # None: the edit does not apply, what was recorded stays
            ranked.append(replace(row, gain=gain))
    rows, all_changes = _with_others(sorted(ranked, key=lambda row: -row.weight), replayed)
    won_ns = replayed.lost_ns(()) - replayed.lost_ns(all_changes)
    return Ranking(rows, max(round(lost_ns - won_ns), 0))


def _faults_worth(causes: Sequence[Cause], replayed: ReplayedRecording) -> tuple[CauseEdit, ...]:
    """Return the edits that take away the faults which cost anything: what bounds gain is told of
    the recording without these."""
    changes = [c.change for c in causes if c.change is not None and not c.is_bound]
    gains = [(change, replayed.gain((change,))) for change in changes]
    least = _WORTH * replayed.step_ns
    return tuple(change for change, gain in gains if gain is not None and gain.ns >= least)


def _with_others(
    ranked: list[RankedCause], replayed: ReplayedRecording
) -> tuple[list[RankedCause], tuple[CauseEdit, ...]]:
    """Return the causes with what each gains together with those above it, and all their edits."""
    above: tuple[CauseEdit, ...] = ()
    together, rows = 0, []
    for row in ranked:
        if row.cause.change is None or row.gain is None:
            rows.append(row)
            continue
        last, first = together, not above
        above = (*above, row.cause.change)
        gain = replayed.gain(above)
        together = max(gain.ns if gain else 0, last)
        shared = 0 if first else row.gain.ns - (together - last)
        words = None
        if shared >= _SHARED * row.gain.ns and shared >= _WORTH * replayed.step_ns:
            others = "cause 1" if len(above) == 2 else "causes above it"
            words = f"{format_duration(shared)} of it goes with {others}"
        rows.append(replace(row, together_ns=together, overlaps=words))
    return rows, above
