"""Which engine reads: the compiled one where it is built, another where that is asked for."""

import pytest

from htk.base.core.engine import choose_engine, load_core
from htk.base.errors import UsageError
from htk.parsers.kineto import pure
from htk.parsers.kineto.read import read_events
from tests.parsers.kineto.written_events import event, trace


def test_the_engine_can_be_forced(truth, monkeypatch):
    monkeypatch.setenv("HTK_ENGINE", "pure")
    assert choose_engine() == "pure"
    assert read_events(truth.Pieces(trace(event(1)))).rows == 1
    monkeypatch.setenv("HTK_ENGINE", "fast")
    with pytest.raises(UsageError, match="expected 'compiled' or 'pure'"):
        choose_engine()


def test_a_missing_compiled_engine_is_said(monkeypatch):
    monkeypatch.setattr("htk.base.core.engine.load_core", lambda: None)
    monkeypatch.setenv("HTK_ENGINE", "compiled")
    with pytest.raises(UsageError, match=r"reinstall htk-trace where there is a C\+\+17 compiler"):
        choose_engine()
    monkeypatch.delenv("HTK_ENGINE")
    assert choose_engine() == "pure"


@pytest.mark.parametrize("name", ["compiled", "pure"])
def test_the_engine_in_use_reads(truth, monkeypatch, name):
    """It alone, and with what it was asked for."""
    if name == "compiled" and load_core() is None:
        pytest.skip("the compiled core is not built here")
    other = []
    monkeypatch.setenv("HTK_ENGINE", name)
    if name == "compiled":
        monkeypatch.setattr(pure, "parse_events", lambda *_, **__: other.append(name))
    elif load_core() is not None:
        from htk.parsers.kineto import native

        monkeypatch.setattr(native, "parse_events", lambda *_, **__: other.append(name))
    progress = []
    unread = b'{"ph":"X","args":{"new key":[1,2]}}'
    text = trace(event(1), unread)
    raw = read_events(truth.Pieces(text), rest=True, progress=progress.append)
    assert raw.rows == 2 and not other
    assert truth.sparse(raw, "args_rest") == {1: '{"new key":[1,2]}'}
    assert progress[-1] == len(text)
    assert "args_rest" not in read_events(truth.Pieces(text)).names
