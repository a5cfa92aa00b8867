"""The secrets of stores.

Whoever may write to a folder or bucket could change numbers in it. Each store has a secret, and
what is written with it carries a seal over its name and its content, which nobody makes without
the secret.
"""

import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from htk.base.errors import TraceError, UsageError
from htk.base.io.temporary import temporary_name

VARIABLE = "HTK_STORE_KEY"  # names the file of a secret
UNSIGNED = "none"  # in its place: entries are used whoever wrote them
SEAL_BYTES = hashlib.sha256().digest_size
_SECRET_BYTES = 32
_PIECE = 1 << 20


@dataclass(frozen=True)
class StoreKey:
    """The secret of a store."""

    secret: bytes

    @property
    def store(self) -> str:
        """The name of its store, which does not tell the secret."""
        return hmac.new(self.secret, b"store", hashlib.sha256).hexdigest()[:32]

    def append_seal(self, file: Path, name: str) -> None:
        """Seal what a file holds, which others will read by this name."""
        seal = self._seal_file(file, name, file.stat().st_size)
        with file.open("ab") as content:
            content.write(seal)

    def take_seal(self, file: Path, name: str) -> None:
        """Cut the seal of a file; ValueError if it was not sealed by this name or was changed."""
        length = max(file.stat().st_size - SEAL_BYTES, 0)
        with file.open("r+b") as content:
            content.seek(length)
            seal = content.read()
            content.truncate(length)
        if not hmac.compare_digest(seal, self._seal_file(file, name, length)):
            raise ValueError("its seal is not of this store")

    def _seal_file(self, file: Path, name: str, length: int) -> bytes:
        seal = hmac.new(self.secret, f"{name}\n{length}\n".encode(), hashlib.sha256)
        with file.open("rb") as content:
            while piece := content.read(_PIECE):
                seal.update(piece)
        return seal.digest()


def is_unsigned_asked_for() -> bool:
    """Return whether entries are to be used whoever wrote them."""
    return os.environ.get(VARIABLE, "").lower() == UNSIGNED


def key_of_store(store: str) -> StoreKey | None:
    """Return the secret of a store: the one given, else one that was made for this user; None:
    neither is of this store."""
    return next((key for key in _known_keys() if key.store == store), None)


def key_of_new_store(address: str) -> StoreKey:
    """Return the secret given, else one made for an address and kept for this user. Shares that
    begin at once have the same."""
    if is_unsigned_asked_for():
        raise UsageError(f"{VARIABLE}={UNSIGNED} is for reading; a store is written with a key")
    if os.environ.get(VARIABLE):
        return _given_key()
    file = _find_folder() / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.key"
    try:
        if not file.exists():
            _make_secret(file)
        return _read_secret(file)
    except OSError as error:
        raise TraceError(
            f"{file}: {error.strerror}: no key can be kept for the store; name one with --store-key"
        ) from error


def _make_secret(file: Path) -> None:
    """Write a new secret; who comes first has made it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = file.with_name(temporary_name())
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w") as content:
            content.write(f"{os.urandom(_SECRET_BYTES).hex()}\n")
        with suppress(FileExistsError):
            os.link(own, file)
    finally:
        own.unlink()


def _known_keys() -> Iterator[StoreKey]:
    if os.environ.get(VARIABLE):
        yield _given_key()
    for file in sorted(_find_folder().glob("*.key")):
        with suppress(OSError, UsageError):
            yield _read_secret(file)


def _given_key() -> StoreKey:
    file = Path(os.environ[VARIABLE]).expanduser()
    try:
        return _read_secret(file)
    except OSError as error:
        raise UsageError(f"key of a store: {file}: {error.strerror}") from error


def _read_secret(file: Path) -> StoreKey:
    with file.open("rb") as content:
        text = content.read(_PIECE).strip()
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise UsageError(
            f"{file}: expected {2 * _SECRET_BYTES} hexadecimal digits of a store's key"
        )
    return StoreKey(secret)


def _find_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_config_dir("htk", appauthor=False)) / "store-keys"
