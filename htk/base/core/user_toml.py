"""Settings that a user wrote: TOML of a bounded size; what is wrong with a file is one line."""

import tomllib
from pathlib import Path

from htk.base.errors import UsageError
from htk.base.mappings import Fields

_MOST_BYTES = 1 << 20


def read_toml(path: Path, purpose: str) -> Fields:
    """Return what a file holds; `purpose` is what it should be, such as "a list of GPUs"."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)  # a device says no size
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{path}: over {_MOST_BYTES >> 20} MiB, too large for {purpose}")
        return tomllib.loads(content.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not readable as {purpose} ({error})") from error
    except (ValueError, RecursionError) as error:  # also of integers of thousands of digits
        raise UsageError(f"{path}: not TOML: {error}") from error
