"""Names of files and folders that are not whole yet: which process writes one, and whether it still
may.

A name holds the process' number and what tells where that number holds: this start of this machine,
and within it the container. Of another machine that shares the folder nothing is known but the age.
"""

import hashlib
import os
import shutil
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

TEMPORARY = ".new-"
STALE_S = 24 * 3600  # what nobody can be asked about is given up after that


def temporary_name(what: str = "") -> str:
    """Return a name that no other process takes, nor this one again."""
    return f"{TEMPORARY}{_name_namespace()}-{os.getpid()}-{uuid.uuid4().hex}{what}"


def temporary_folder(within: Path) -> Path:
    """Make a folder that is not whole yet."""
    folder = within / temporary_name()
    folder.mkdir(mode=0o700)
    return folder


def is_given_up(path: Path, older_than_s: float = STALE_S) -> bool:
    """Return whether a file or folder is a temporary one whose process is gone, or that is old."""
    if not path.name.startswith(TEMPORARY):
        return False
    namespace, _, rest = path.name.removeprefix(TEMPORARY).partition("-")
    number = rest.partition("-")[0]
    if (
        namespace
        and namespace == _name_namespace()
        and number.isdecimal()
        and not _is_running(int(number))
    ):
        return True
    try:
        return time.time() - path.stat().st_mtime >= older_than_s
    except OSError:  # another process removed it, or gave it its name
        return False


def remove_path(path: Path) -> None:
    """Remove a file or folder; what cannot be removed stays."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


@cache
def boot_id() -> str:
    """Return what tells one start of the machine from the next, where the system says it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@cache
def _name_namespace() -> str:
    """Return what tells where a process' number means that process; "": not known."""
    try:
        namespace = f"{boot_id()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""
    return hashlib.sha256(namespace.encode()).hexdigest()[:8] if boot_id() else ""


def _is_running(number: int) -> bool:
    """Return whether there is a process of that number here. Linux is asked, as
    `_name_namespace` makes sure: elsewhere the question may end the process."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True
