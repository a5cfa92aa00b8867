"""Files that are there whole, or not at all."""

import errno
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

# Where a file may be written and none put in its stead: one that a container mounts, for example.
_NO_OTHER_FILE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS)


def write_whole(target: str | Path, content: str | bytes) -> None:
    """Write a file. Where that fails, as on a full disk, or is stopped, what was there before stays
    and no half is left, since half an answer looks like one; the error names the file."""
    data = content.encode() if isinstance(content, str) else content
    try:
        _write_file(Path(target), data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error


def _write_file(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():  # a device or a pipe
        path.write_bytes(data)
        return
    path = path.resolve()  # a link stays one
    temporary = path.with_name(f".htk-{os.getpid()}-{threading.get_ident()}")
    try:
        temporary.write_bytes(data)
        with suppress(FileNotFoundError):  # a new file
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        if error.errno not in _NO_OTHER_FILE or not path.exists():
            raise
        path.write_bytes(data)
    finally:
        temporary.unlink(missing_ok=True)
