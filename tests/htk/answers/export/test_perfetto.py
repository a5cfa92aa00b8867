"""Perfetto's viewer, served from this machine."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.export.perfetto import build_perfetto_app, ui_folder
from htk.base.errors import MissingPackage, UsageError


@pytest.fixture
def ui(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ui"
    (folder / "v1").mkdir(parents=True)
    (folder / "index.html").write_text("<html>perfetto</html>")
    (folder / "v1/code.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setenv("HTK_PERFETTO_UI", str(folder))
    return folder


def _get(ui: Path, path: str, **environ: Any) -> tuple[str, dict[str, str], bytes]:
    trace = ui.parent / "trace.json.gz"
    trace.write_bytes(b"trace")
    said: list[Any] = []
    asked = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_HOST": "127.0.0.1:80", **environ}
    body = build_perfetto_app(ui_folder(), trace)(asked, lambda *a: said.extend(a))
    return said[0], dict(said[1]), b"".join(body)


def test_the_viewer_and_the_trace(ui: Path) -> None:
    assert _get(ui, "/")[2] == b"<html>perfetto</html>"
    assert _get(ui, "/v1/code.js")[1]["Content-Type"].endswith("javascript")
    assert _get(ui, "/localtrace")[2] == b"trace"
    assert _get(ui, "/vizviewer_info")[2] == b"{}"
    assert "connect-src 'self'" in _get(ui, "/")[1]["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/../secret.txt", "/link.txt", "//etc/passwd", "/v1", "/none"])
def test_nothing_beside_it(ui: Path, path: str) -> None:
    status, _, body = _get(ui, path)
    assert status.startswith("404") and b"secret" not in body


def test_nobody_else_is_answered(ui: Path) -> None:
    assert _get(ui, "/", HTTP_HOST="evil.example")[0].startswith("403")
    assert _get(ui, "/localtrace", REQUEST_METHOD="POST")[0].startswith("403")


def test_without_a_viewer_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_PERFETTO_UI", str(tmp_path))
    with pytest.raises(UsageError, match=r"no index\.html"):
        ui_folder()
    monkeypatch.delenv("HTK_PERFETTO_UI")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"htk-trace\[perfetto\]"):
        ui_folder()
