"""URLs that fsspec opens: s3://, gs://, http://, memory:// and whatever else is installed."""

import re
from functools import partial
from typing import Any, BinaryIO, cast

from htk.errors import TraceError
from htk.parser import Source

_URL = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def sources(url: str) -> list[Source]:
    """The file at a URL, or the files below it, or those that match it."""
    from htk import archives

    system, path = _system(url)
    try:
        paths = _files(system, path)
    except Exception as error:  # each file system has errors of its own
        raise TraceError(f"{url}: {type(error).__name__}: {error}") from error
    if not paths:
        raise TraceError(f"{url}: no files there")
    found = [_source(system, url, p) for p in paths]
    return [s for one in found for s in archives.members(one) or [one]]


def _system(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        how = f"pip install 'htk[{extra}]'" if extra else f"install the fsspec driver: {error}"
        raise TraceError(f"{url}: no driver for {scheme}://; {how}") from error
    except ValueError as error:
        raise TraceError(f"{url}: {error}") from error
    return system, path


def _files(system: Any, path: str) -> list[str]:
    if any(c in path for c in "*?["):
        return sorted(p for p in system.glob(path) if system.isfile(p))
    if system.isfile(path):
        return [path]
    return sorted(system.find(path))


def _source(system: Any, url: str, path: str) -> Source:
    facts = system.info(path)
    tag = facts.get("ETag") or facts.get("etag") or facts.get("LastModified") or facts.get("mtime")
    name = str(system.unstrip_protocol(path))
    identity = f"{name}|{facts.get('size')}|{tag}" if tag else None
    return Source(name, partial(_open, system, path), facts.get("size"), identity)


def _open(system: Any, path: str) -> BinaryIO:
    try:
        return cast(BinaryIO, system.open(path, "rb"))
    except Exception as error:  # each file system has errors of its own
        raise TraceError(f"{path}: {type(error).__name__}: {error}") from error
