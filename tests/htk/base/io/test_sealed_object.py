"""Objects on disk that only who wrote them loads."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from htk.base.io import sealed_object
from htk.base.io.sealed_object import KEY_BYTES, keep_object, load_kept_object


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_what_was_kept_is_there_again_until_the_next(tmp_path: Path) -> None:
    key, path = os.urandom(KEY_BYTES), tmp_path / "a"
    assert load_kept_object(path, key) is None
    keep_object({"times": np.arange(1000)}, path, key)
    assert load_kept_object(path, key)["times"].tolist() == list(range(1000))
    keep_object("other", path, key)
    assert load_kept_object(path, key) == "other"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_nothing_of_others_is_loaded(tmp_path: Path) -> None:
    key, path, sprung = os.urandom(KEY_BYTES), tmp_path / "a", tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    for content in (trap, b"\0" * 32 + trap, b"", b"\0" * 31):
        path.write_bytes(content)
        assert load_kept_object(path, key) is None
    keep_object(Trap(sprung), path, os.urandom(KEY_BYTES))
    assert load_kept_object(path, key) is None
    assert not sprung.exists()


def test_what_changes_after_it_was_checked_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, path, sprung = os.urandom(KEY_BYTES), tmp_path / "a", tmp_path / "sprung"
    keep_object([1, 2, 3], path, key)
    trap = pickle.dumps(Trap(sprung))

    def compare_and_let_change(one: bytes, other: bytes) -> bool:
        with path.open("r+b") as file:  # in place, as a mapping would see it
            file.write(trap)
        return bytes(one) == bytes(other)

    monkeypatch.setattr(sealed_object.hmac, "compare_digest", compare_and_let_change)
    assert load_kept_object(path, key) == [1, 2, 3]
    assert not sprung.exists() and path.read_bytes().startswith(trap)


def test_no_damage_is_loaded(tmp_path: Path) -> None:
    key, path = os.urandom(KEY_BYTES), tmp_path / "a"
    keep_object([1, 2, 3], path, key)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert load_kept_object(path, key) is None
        path.write_bytes(whole[:at])
        assert load_kept_object(path, key) is None
    path.write_bytes(whole)
    assert load_kept_object(path, key) == [1, 2, 3]
