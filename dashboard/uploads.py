"""Files that visitors bring: kept in a folder that goes with the server, each under its key."""

import secrets
import shutil
import tempfile
import threading
from pathlib import Path
from typing import IO

from htk.base.errors import UsageError

MOST_UPLOADS = 8
MOST_TOGETHER = 512  # files of one upload


class Uploads:
    """Uploads of one server; the oldest make room for new ones."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path | None:
        """The folder that holds the uploads; None before the first."""
        return Path(self._kept.name) if self._kept is not None else None

    def keep(self, name: str, body: IO[bytes], token: str = "") -> str:
        """Save a file, alone or with the others of a token; return the token."""
        folder = self._folder_of(token) if token else self._make_folder()
        stored = [file.stat().st_size for file in folder.iterdir()]
        target = folder / _make_name_safe(name)
        try:
            if len(stored) >= MOST_TOGETHER:
                raise UsageError(f"more than {MOST_TOGETHER} files; pack them into an archive")
            if target.exists():
                raise UsageError(f"{name[:80]!r} was sent twice")
            _save_upload(body, target, self._most_bytes - sum(stored), self._most_bytes)
        except UsageError:
            if not token:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder.name

    def names(self, token: str) -> list[str]:
        """Return the names of an upload's files; none of one that has made room."""
        folder = (self.folder or Path()) / token
        is_kept = self.folder is not None and folder in self.folder.iterdir()
        return sorted(file.name for file in folder.iterdir()) if is_kept else []

    def close(self) -> None:
        if self._kept is not None:
            self._kept.cleanup()

    def _make_folder(self) -> Path:
        with self._lock:
            if self._kept is None:
                # It goes with the process at the latest.
                self._kept = tempfile.TemporaryDirectory(prefix="htk-uploads-")
            root = Path(self._kept.name)
            old = sorted(root.iterdir(), key=lambda f: f.stat().st_mtime)
            for folder in old[: max(0, len(old) - MOST_UPLOADS + 1)]:
                shutil.rmtree(folder, ignore_errors=True)
            folder = root / secrets.token_urlsafe(12)
            folder.mkdir()
        return folder

    def _folder_of(self, token: str) -> Path:
        folders = {folder.name: folder for folder in self.folder.iterdir()} if self.folder else {}
        if token not in folders:
            raise UsageError("there is no upload that this file could belong to")
        return folders[token]


def _make_name_safe(name: str) -> str:
    """Return the last part of a file's name, with nothing in it that a path could mean."""
    plain = "".join(c if c.isalnum() or c in "._-" else "_" for c in Path(name).name)
    return plain.lstrip(".")[-120:] or "trace.json"


def _save_upload(body: IO[bytes], path: Path, most: int, allowed: int) -> None:
    size = 0
    with path.open("wb") as file:
        while block := body.read(1 << 20):
            size += len(block)
            if size > most:
                path.unlink()
                raise UsageError(f"larger than {allowed >> 20} MiB, the most that may be uploaded")
            file.write(block)
    if not size:
        path.unlink()
        raise UsageError("the file is empty")
