"""Objects that the workers of one answer leave for each other on disk.

They are pickled, and a pickle can name any code: only what a holder of the key has written is
loaded, and only whole.
"""

import hashlib
import hmac
import pickle
from pathlib import Path
from typing import Any, BinaryIO

from htk.base.io.temporary import temporary_name

KEY_BYTES = 32
_SEAL_BYTES = 32


def keep_object(what: object, path: Path, key: bytes) -> None:
    """Write an object in place of one that may be there; whoever reads finds either, whole."""
    own = path.with_name(temporary_name())
    with own.open("wb") as file:
        sealed = _Sealing(file, key)
        pickle.dump(what, sealed, protocol=pickle.HIGHEST_PROTOCOL)
        file.write(sealed.seal.digest())
    own.replace(path)


def load_kept_object(path: Path, key: bytes) -> Any:
    """Return the object; None: there is none that was written with this key."""
    try:
        content = memoryview(path.read_bytes())  # a copy: what is loaded is what was checked
    except OSError:
        return None
    pickled = content[:-_SEAL_BYTES]
    seal = hashlib.blake2b(pickled, key=key, digest_size=_SEAL_BYTES).digest()
    return pickle.loads(pickled) if hmac.compare_digest(seal, content[-_SEAL_BYTES:]) else None


class _Sealing:
    """A file whose content is sealed as it is written."""

    def __init__(self, file: BinaryIO, key: bytes) -> None:
        self.seal = hashlib.blake2b(key=key, digest_size=_SEAL_BYTES)
        self._file = file

    def write(self, content: Any) -> int:
        self.seal.update(content)
        return self._file.write(content)
