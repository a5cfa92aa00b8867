"""Notes of shares: which files a store lacks, and why."""

import json
from pathlib import Path

import pytest

from htk.base.io.shared_store import SharedStore
from htk.faces.cli.main import run_command_line
from htk.traces.trace.mapping import Shard, map_files
from htk.traces.trace.opening import open_trace
from htk.traces.trace.shares import NO_TRACE, ShareNote, not_stored, notes_of
from tests.two_ranks import write_ranks


def note(number: int, count: int, *, at: float = 1.0, **keys: str) -> ShareNote:
    return ShareNote("run", number, count, at, keys)


def test_what_a_share_has_not_stored_is_named_with_the_share() -> None:
    notes = [note(1, 2, a="1", c="3"), note(2, 2, b="2", d="4")]
    unread, lacking = not_stored(notes, {"1", "2", "3"})
    assert unread == []
    assert [file for file, _ in lacking] == ["d"] and "share 2/2" in lacking[0][1]


def test_the_last_share_that_took_a_file_on_tells_of_it() -> None:
    old, new = note(1, 1, a="1", b="2"), note(1, 1, at=2.0, a="other", b="2")
    assert [file for file, _ in not_stored([old, new], {"1", "2"})[1]] == ["a"]
    assert not_stored([new, note(1, 1, at=3.0, a="1", b="2")], {"1", "2"}) == ([], [])


def test_files_that_failed_or_are_no_traces_say_so() -> None:
    left = {"a": "a: cut off", "b": NO_TRACE, "c": "the disk was full"}
    of_share = ShareNote("run", 1, 1, 1.0, {"a": "1", "b": None, "c": "3"}, left)
    assert not_stored([of_share], {"3"}) == (["b"], [("a", "a: cut off")])


def test_shares_of_which_there_is_no_sign() -> None:
    begun = [note(2, 5, a="1"), note(5, 5, b="2")]
    ((inputs, why),) = not_stored(begun, {"1", "2"})[1]
    assert inputs == "run" and why.startswith("shares 1, 3..4 of 5 have not begun")
    whole = note(1, 1, at=2.0, a="1", b="2", c="3")
    assert not_stored([*begun, whole], {"1", "2", "3"})[1] == [], "divided another way, all began"
    elsewhere = ShareNote("other", 1, 2, 3.0, {})
    assert [i for i, _ in not_stored([*begun, whole, elsewhere], {"1", "2", "3"})[1]] == ["other"]


def test_what_is_no_note_says_nothing() -> None:
    good = note(1, 1, a="1")
    fields = json.loads(good.packed())
    bad = [
        {**fields, **changed}
        for changed in (
            {"keys": ["a"]}, {"keys": {"a": 1}}, {"left": {"a": 1}}, {"number": 2}, {"inputs": 1},
            {"count": 10**12}, {"count": None}, {"written": "x"}, {"keys": None}, {"more": 1},
        )
    ]  # fmt: skip
    contents = [json.dumps(b).encode() for b in bad] + [b"", b"[]", b"{", b"\xff"]
    assert notes_of([*contents, good.packed(), OSError("gone")]) == [good]


def test_a_store_tells_what_is_missing_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "ranks").mkdir()
    folder, store = write_ranks(tmp_path / "ranks"), str(tmp_path / "store")
    (folder / "settings.yaml").write_text("a: 1")
    (folder / "notes.json").write_text('{"nothing": "of the kind"}')
    for share in (1, 2, 3):
        map_files(folder, store, Shard(share, 4))
    ((inputs, why),) = open_trace(store).failed
    assert inputs == str(folder) and why.startswith("shares 4 of 4 have not begun")
    assert run_command_line(["summary", store]) == 0
    assert "1 file failed" in capsys.readouterr().out
    map_files(folder, store, Shard(4, 4))
    trace, of_files = open_trace(store), open_trace(folder)
    assert (trace.failed, trace.unread) == (of_files.failed, of_files.unread) and trace.unread
    entry = next(Path(store).glob("*/*.zip"))
    entry.unlink()  # as of a share that was killed
    ((name, why),) = open_trace(store).failed
    assert name.startswith(str(folder)) and "has not stored it" in why
    map_files(folder, store, Shard())
    assert not open_trace(store).failed and len(SharedStore(store).notes()) == 5
