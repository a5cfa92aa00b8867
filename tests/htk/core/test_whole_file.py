"""Files that are there whole, or not at all."""

import errno
import os
import sys
from pathlib import Path

import pytest

from htk.core.whole_file import write_whole


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
