"""The engine without a compiler: its bounds, its batches, and all that it says differently."""

import gc

import pytest

from htk.parsers.kineto import pure
from tests.parsers.kineto.written_events import correlations, event, trace


def test_an_event_of_endless_length_is_given_up(both, monkeypatch):
    """Neither engine keeps more than 64 MB in the hope of an end (pure: 1 MB, to be quick)."""
    monkeypatch.setattr(pure, "_LONGEST", 1 << 20)
    for read, length in zip(both, (66 << 20, 2 << 20), strict=True):
        endless = b'{"ph":"X","name":"' + b"x" * length + b'"}'
        raw = read(trace(event(1), endless, event(3)))
        assert correlations(raw) == [1, 3]
        assert set(raw.issue_counts) == {"broken_event"}


def test_small_batches_make_no_difference(both, monkeypatch):
    compiled, slow = both
    text = trace(*map(event, range(300)))
    monkeypatch.setattr(pure, "_BATCH", 500)
    assert correlations(slow(text)) == correlations(compiled(text)) == list(range(300))


def test_what_the_engines_say_differently(both):
    """All that may differ, as the docstring of the pure engine lists it."""
    mistyped = b'{"ph":"X","ts":"later","name":"a"}'
    compiled, slow = (read(trace(event(1), mistyped)) for read in both)
    assert [issue.text for issue in compiled.issues] == ['ts: "later"']
    assert [issue.text for issue in slow.issues] == ['ts: "later"']
    assert compiled.issues[-1].offset is not None
    assert slow.issues[-1].offset is None


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_collected_afterwards_if_it_was_before(truth, collecting):
    """Also where the stream breaks off with an error."""

    class Torn(truth.Pieces):
        def readinto(self, buffer):
            if not self.left:
                raise OSError("the disk is gone")
            return super().readinto(buffer)

    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        pure.parse_events(truth.Pieces(trace(event(1))))
        assert gc.isenabled() == collecting
        with pytest.raises(OSError, match="the disk is gone"):
            pure.parse_events(Torn(trace(event(1))))
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
