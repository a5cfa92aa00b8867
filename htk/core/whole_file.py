"""Files that are there whole, or not at all."""

from pathlib import Path


def write_whole(target: str | Path, content: str | bytes) -> None:
    """Write a file. Where that fails, as on a full disk, nothing is left of it, since half an
    answer looks like one; the error names the file."""
    path = Path(target)
    data = content.encode() if isinstance(content, str) else content
    try:
        path.write_bytes(data)
    except OSError as error:
        if path.is_file():  # no device
            path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(target)) from error
