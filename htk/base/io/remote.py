"""URLs that fsspec opens: s3://, gs://, http://, memory:// and whatever else is installed."""

import re
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from htk.base.core.extras import spell_install
from htk.base.core.humanize import format_bytes
from htk.base.core.parser import Source
from htk.base.core.stated_counts import STORED_BYTES
from htk.base.errors import MissingPackage, TraceError
from htk.base.io.raw_files import build_broken_source, spell_reason
from htk.base.mappings import Facts

_URL = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "http": "http", "https": "http"}
# Parameters of an address that say who asks and for how long, not what is asked for.
_SIGNATURES = re.compile(
    r"(x-amz-|x-goog-).*|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id|token"
    r"|se|sig|ske|skoid|sks|skt|sktid|skv|sp|spr|sr|st|sv",
    re.IGNORECASE,
)
# What stores call the mark that changes with a file's content, the surest first.
_MARKS = ("ETag", "etag", "md5Hash", "Content-MD5", "Digest")
_TIMES = ("LastModified", "Last-Modified", "last_modified", "mtime", "updated")


def is_url(name: str) -> bool:
    return _URL.match(name) is not None


def list_remote_sources(url: str, may_be_trace: Callable[[str], bool]) -> list[Source]:
    """Return the file at a URL, or those below it that may be traces, or those that match it."""
    is_web = url.lower().startswith("http")
    url = f"{url}/" if is_web and not urlsplit(url).path else url  # what is linked there
    system, path = find_filesystem(url)
    try:
        files = _list_files(system, path, url)
    except Exception as error:  # each file system has errors of its own
        raise TraceError(f"{_hide_secrets(url)}: {_explain_error(error)}") from error
    if list(files) != [path]:
        files = {p: f for p, f in files.items() if may_be_trace(p) and not _is_action(p, is_web)}
    return [_build_source(system, p, facts) for p, facts in sorted(files.items())]


def _is_action(path: str, is_web: bool) -> bool:
    """Return whether a page does something when asked: torch's debug server then profiles a job."""
    return is_web and path.endswith("/profile")


def find_filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL (or of a path on this machine), and the path there."""
    scheme = url.partition("://")[0].lower()
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(url)
        system.invalidate_cache()  # listings are kept by the process; files change
    except ImportError as error:
        missing = f"{_hide_secrets(url)}: no driver for {scheme}://"
        if extra := _EXTRAS.get(scheme):
            raise MissingPackage(f"{missing}: {spell_install(extra)}") from error
        raise TraceError(f"{missing}; {spell_reason(error)}") from error
    except Exception as error:  # each file system has errors of its own
        raise TraceError(f"{_hide_secrets(url)}: {spell_reason(error)}") from error
    return system, path


def _list_files(system: Any, path: str, url: str) -> dict[str, Facts]:
    web = url.lower().startswith("http")  # where every page is a file, and "?" starts the query
    magic = any(c in path for c in ("*" if web else "*?["))
    if not (magic or url.endswith("/")) if web else system.isfile(path):
        return {path: system.info(path)}
    listed = system.glob(path, detail=True) if magic else system.find(path, detail=True)
    if not listed:
        raise FileNotFoundError(path)
    return {p: facts for p, facts in listed.items() if facts.get("type") == "file"}


def _explain_error(error: BaseException) -> str:
    cause = error.__cause__ or error  # over HTTP whatever fails is first of all not found
    status = getattr(cause, "status", None)
    if status == 404 or isinstance(cause, FileNotFoundError):
        return "no such file or folder"
    if status is not None:  # its own words repeat the address, signature and all
        return f"HTTP {status}: {getattr(cause, 'message', '')}"
    return f"{type(cause).__name__}: {spell_reason(cause)}"


def _build_source(system: Any, path: str, facts: Facts) -> Source:
    address = str(system.unstrip_protocol(path))
    name = _hide_secrets(address)
    size = facts.get("size")
    if isinstance(size, int) and not STORED_BYTES.believes(size):
        most = format_bytes(STORED_BYTES.most)
        return build_broken_source(
            name, f"{size:,} bytes are declared; a file of up to {most} is read"
        )
    identity = None
    if mark := _find_first_fact(facts, _MARKS):
        identity = f"{name}|{_asked_for(address)}{size}|{mark}"
    elif time := _find_first_fact(facts, _TIMES):
        identity = f"{address}|{size}|{time}"
    return Source(name, partial(_open_file, system, path), size, identity)


def _asked_for(address: str) -> str:
    """Return a hash of an address's query without its signature; nothing for one without."""
    query = parse_qsl(urlsplit(address).query, keep_blank_values=True)
    named = sorted(pair for pair in query if not _SIGNATURES.fullmatch(pair[0]))
    is_web = address.lower().startswith("http")
    return f"{sha256(repr(named).encode()).hexdigest()}|" if is_web and named else ""


def _find_first_fact(facts: Facts, names: tuple[str, ...]) -> str:
    return next((str(facts[name]) for name in names if facts.get(name)), "")


def _hide_secrets(url: str) -> str:
    """Return the address without what may be secret: a signature in the query, a password."""
    if not url.lower().startswith("http"):
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _open_file(system: Any, path: str) -> BinaryIO:
    return cast(BinaryIO, system.open(path, "rb"))
