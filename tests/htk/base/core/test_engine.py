"""Which reader is at work, and whether people are told that it is the slow one."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from htk.base.core import engine
from htk.base.errors import UsageError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.overview.doctor import check_recording


@pytest.fixture
def no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the compiled parts."""
    monkeypatch.delenv("HTK_ENGINE", raising=False)
    monkeypatch.setattr("htk.base.core.engine.load_core", lambda: None)
    monkeypatch.setattr("htk.verdicts.overview.doctor.load_core", lambda: None)


@pytest.mark.usefixtures("no_core")
def test_without_the_core_the_slow_reader_is_named() -> None:
    assert engine.choose_engine() == "pure"
    assert engine.describe_engine().startswith("pure, the slow reader: for the fast one install")


@pytest.mark.usefixtures("no_core")
def test_the_core_cannot_be_forced_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_ENGINE", "compiled")
    with pytest.raises(UsageError, match="reinstall htk-trace where there is a C\\+\\+17 compiler"):
        engine.choose_engine()


@pytest.mark.usefixtures("no_core")
def test_doctor_tells_of_the_slow_reader() -> None:
    rows = check_recording(open_trace("sample", OpenOptions(cache=False))).to_pylist()
    (row,) = [r for r in rows if r["item"] == "reader"]
    assert (row["section"], row["state"]) == ("files", "note")
    assert row["finding"] == "2 files read by the slow reader, in Python: same results"
    assert row["advice"] == engine.SLOW_READER


def test_a_core_of_other_sources_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    core = engine.load_core()
    if core is None or not engine.sources_digest():
        pytest.skip("no compiled core of a checkout here")
    assert engine.sources_digest() == core.SOURCES
    monkeypatch.delenv("HTK_ENGINE", raising=False)
    for outdated in (ModuleType("before"), ModuleType("changed")):  # of no digest, of another
        outdated.__file__ = "htk/base/native/_kineto.abi3.so"
        monkeypatch.setitem(sys.modules, "htk.base.native._kineto", outdated)
        with pytest.raises(UsageError, match=r"_kineto\.abi3\.so was built from other sources"):
            open_trace("sample", OpenOptions(cache=False))
        monkeypatch.setattr(outdated, "SOURCES", "0" * 64, raising=False)
    monkeypatch.setattr(outdated, "SOURCES", core.SOURCES)
    assert engine.load_core() is outdated


def test_sources_are_hashed_by_content(tmp_path: Path) -> None:
    assert engine.sources_digest(tmp_path / "none") == ""
    for name, text in (("b.h", "2"), ("a.cpp", "1"), ("a.o", "built")):
        (tmp_path / name).write_text(text)
    assert engine.sources_digest(tmp_path) == hashlib.sha256(b"12").hexdigest()


def test_doctor_says_nothing_of_a_reader_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    if engine.load_core() is None:
        pytest.skip("this installation has no compiled reader to choose against")
    monkeypatch.setenv("HTK_ENGINE", "pure")
    rows = check_recording(open_trace("sample", OpenOptions(cache=False))).to_pylist()
    assert not [r for r in rows if r["item"] == "reader"]
