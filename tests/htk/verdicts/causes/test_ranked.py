"""Places of causes, where some have no gain that a replay could tell."""

from typing import cast

from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.ranked import RankedCause, rank_by_gain
from htk.verdicts.causes.replayed import Gain, ReplayedRecording
from htk.verdicts.overview.parts import FirstCause, tell_gains_together

LARGE = CauseEdit("large", lambda model: model)
SMALL = CauseEdit("small", lambda model: model)


class _Job:
    """A step of 1,000 ns, of which one edit saves 300 and the other 200, but together 320."""

    step_ns = 1000

    def saved_ns(self, edits: tuple[CauseEdit, ...]) -> float:
        return {(): 0, (LARGE,): 300, (SMALL,): 200, (LARGE, SMALL): 320}[edits]

    def lost_ns(self, edits: tuple[CauseEdit, ...]) -> float:
        return 500 - self.saved_ns(edits)

    def gain(self, edits: tuple[CauseEdit, ...], before: tuple[CauseEdit, ...]) -> Gain:
        saved = round(self.saved_ns(edits))
        return Gain(saved, saved, saved)


def _rank(*causes: Cause) -> list[RankedCause]:
    job = cast(ReplayedRecording, _Job())
    return rank_by_gain(causes, job, 1, lambda _: True, 500).causes


def _cause(finding: str, recorded_ns: int, change: CauseEdit | None) -> Cause:
    return Cause(finding, "", "", recorded_ns, "recommendations", change=change)


def test_what_goes_with_another_cause_names_its_place() -> None:
    """The first of the list has no gain: what the third shares, it shares with the second."""
    unknown = _cause("waits", 600, None)
    causes = _rank(_cause("small", 200, SMALL), unknown, _cause("large", 300, LARGE))
    assert [c.cause.finding for c in causes] == ["waits", "large", "small"]
    assert [c.together_ns for c in causes] == [None, 300, 320]
    assert [c.overlaps for c in causes] == [None, None, "180 ns of it goes with cause 2"]


def test_without_such_a_cause_the_first_is_named() -> None:
    causes = _rank(_cause("small", 200, SMALL), _cause("large", 300, LARGE))
    assert [c.overlaps for c in causes] == [None, "180 ns of it goes with cause 1"]


def test_gains_together_name_the_causes_that_have_one() -> None:
    def first(together_ns: int | None) -> FirstCause:
        return FirstCause("", "", "", 1, None, "", together_ns=together_ns)

    assert tell_gains_together((first(300), first(320), first(400))) == (
        "together: the first two 320 ns, the first three 400 ns"
    )
    assert tell_gains_together((first(None), first(300), first(320))) == (
        "together: causes 2 and 3 320 ns"
    )
    assert tell_gains_together((first(300), first(None), first(320))) == (
        "together: causes 1 and 3 320 ns"
    )
    assert tell_gains_together((first(300), first(None))) == ""
