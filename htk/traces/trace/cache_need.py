"""The cache space that a recording needs to be parsed no more than once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from htk.base.core.humanize import format_bytes, pluralize_count
from htk.base.core.parser import Source
from htk.base.io.shared_store import SharedStore
from htk.base.io.sources import resolve_inputs
from htk.base.io.store import Store
from htk.traces.trace.opening import Inputs, OpenOptions, key_of, parse_options, with_sample

# Bytes kept for each byte of text: events of Kineto as tables, with what is derived from them.
_KEPT_PER_BYTE = 0.6
_PACKED = 12  # bytes of text for each byte of a compressed trace, about
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip", ".tgz")


@dataclass(frozen=True)
class CacheNeed:
    """The cache space that some files take."""

    files: int
    parsed_files: int  # that the cache holds
    parsed_bytes: int  # which those take
    expected_bytes: int  # which the others will take, about
    limit_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.parsed_bytes + self.expected_bytes

    @property
    def fits(self) -> bool:
        """Whether the cache holds all of these files, so that no question parses one again."""
        return self.total_bytes <= self.limit_bytes

    @property
    def text(self) -> str:
        """The need in words, and what to do where it does not fit."""
        needed = format_bytes(self.total_bytes)
        limit = format_bytes(self.limit_bytes)
        about = "about " if self.parsed_files < self.files else ""
        held = f"{self.parsed_files} of them parsed" if self.parsed_files else "none of them parsed"
        line = (
            f"{pluralize_count(self.files, 'file')}, {held}: {about}{needed} of a cache of {limit}"
        )
        if self.fits:
            return line
        return (
            f"{line}; more than it keeps, so that every question parses files again: set "
            f"HTK_CACHE_LIMIT={self.total_bytes} (bytes), or ask about some of the files"
        )


def cache_need(inputs: Inputs, store: Store | None = None) -> CacheNeed:
    """Return how much of the cache the files take that the inputs name; nothing is parsed."""
    store = store or Store()
    options = parse_options(OpenOptions())
    shared = SharedStore.at(str(inputs)) if isinstance(inputs, str | Path) else None
    if shared is not None:
        return _of_copies({shared.cache_key(k): n for k, n in shared.sizes().items()}, store)
    sources = resolve_inputs(with_sample(inputs))
    keys = [key_of(store, source, options) for source in sources]
    sizes = [0 if key is None else store.size_bytes(key) for key in keys]
    others = [expected_bytes(s) for s, size in zip(sources, sizes, strict=True) if not size]
    held = len(sizes) - len(others)
    return CacheNeed(len(sizes), held, sum(sizes), sum(others), store.limit_bytes)


def _of_copies(stored: Mapping[str, int], store: Store) -> CacheNeed:
    """Return the need of a store's entries, which are copied to the cache as they are."""
    held = {key: store.size_bytes(key) for key in stored}
    others = [size for key, size in stored.items() if not held[key]]
    parsed = len(stored) - len(others)
    return CacheNeed(len(stored), parsed, sum(held.values()), sum(others), store.limit_bytes)


def expected_bytes(source: Source) -> int:
    """Return roughly how many bytes a file's tables will take."""
    packed = _PACKED if source.file_name.lower().endswith(_COMPRESSED) else 1
    return round((source.size or 0) * packed * _KEPT_PER_BYTE)
