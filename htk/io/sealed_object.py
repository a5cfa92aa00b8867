"""Objects that the workers of one answer leave for each other on disk.

They are pickled, and a pickle can name any code: only what a holder of the key has written is
loaded, and only whole.
"""

import hashlib
import hmac
import os
import pickle
from pathlib import Path
from typing import Any

KEY_BYTES = 32
_SEAL_BYTES = 32


def keep(what: object, path: Path, key: bytes) -> None:
    """Write an object in place of one that may be there; whoever reads finds either, whole."""
    content = pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL)
    own = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    with own.open("wb") as file:
        file.write(_seal(content, key))
        file.write(content)
    own.replace(path)


def kept(path: Path, key: bytes) -> Any:
    """Return the object; None: there is none that was written with this key."""
    try:
        content = memoryview(path.read_bytes())
    except OSError:
        return None
    seal, content = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
    return pickle.loads(content) if hmac.compare_digest(seal, _seal(content, key)) else None


def _seal(content: bytes | memoryview, key: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=_SEAL_BYTES).digest()
