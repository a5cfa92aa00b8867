"""Files that are there whole, or not at all."""

import errno
import os
import sys
from pathlib import Path

import pytest

from htk.base.core.whole_file import write_whole


@pytest.mark.parametrize(("content", "data"), [("é\n", b"\xc3\xa9\n"), (b"\r\n", b"\r\n")])
def test_content_as_it_is(content: str | bytes, data: bytes, tmp_path: Path) -> None:
    target = tmp_path / "answer"
    target.write_text("what was there before")
    write_whole(str(target), content)
    assert target.read_bytes() == data


def test_what_cannot_be_written_whole_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk on which there is room for a half."""

    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(tmp_path / "answer", "a" * 100)
    assert raised.value.filename == str(tmp_path / "answer")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="no device that is always full")
def test_a_device_stays() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        write_whole("/dev/full", "x")
    assert Path("/dev/full").exists()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_was_there_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "report.html"
    write_whole(target, "of yesterday")
    write_bytes = Path.write_bytes

    def stopped(path: Path, content: bytes) -> int:
        write_bytes(path, content[:2])
        raise error

    monkeypatch.setattr(Path, "write_bytes", stopped)
    with pytest.raises(type(error)):
        write_whole(target, "of today")
    assert target.read_text() == "of yesterday" and [*tmp_path.iterdir()] == [target]


def test_a_file_keeps_its_rights_and_a_link_its_target(tmp_path: Path) -> None:
    (tmp_path / "within").mkdir()
    target, link = tmp_path / "within" / "kept", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, "after")
    assert link.is_symlink() and target.read_text() == "after"
    assert target.stat().st_mode & 0o777 == 0o640
    longest = tmp_path / ("n" * 255)
    write_whole(longest, "a long name")
    assert longest.read_text() == "a long name"


def test_a_file_that_nothing_may_replace_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "mounted"
    target.write_text("before, and longer")

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", busy)
    write_whole(target, "after")
    assert target.read_text() == "after" and [*tmp_path.iterdir()] == [target]
    with pytest.raises(OSError, match="busy"):
        write_whole(tmp_path / "new", "x")
    assert [*tmp_path.iterdir()] == [target]
