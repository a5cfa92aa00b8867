"""Where htk keeps what it made; imported before anything heavy is."""

import os
from pathlib import Path


def cache_root() -> Path:
    """Return HTK_CACHE_DIR, else the user's cache folder."""
    chosen = os.environ.get("HTK_CACHE_DIR")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("htk", appauthor=False))
