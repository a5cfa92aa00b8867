"""Who may look, and what the pages may load."""

from pathlib import Path
from typing import Any

import pytest

from htk import api
from htk.dashboard.app import create_app
from htk.dashboard.runs import Runs
from tests.kineto_file import kernel, of_rank, write


def client(tmp_path: Path, token: str | None = None) -> Any:
    path = write(tmp_path / "t.json", kernel("gemm", 1, 2), **of_rank(0))
    return create_app(Runs(given=api.open(path, cache=False)), token=token).server.test_client()


def test_pages_keep_to_themselves(tmp_path: Path) -> None:
    answer = client(tmp_path).get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert answer.status_code == 200
    assert "default-src 'self'" in policy and "http" not in policy
    assert "unsafe-eval" not in policy
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    visitor = client(tmp_path, token="secret")
    for page in ("/", "/timeline/about", "/export/kernel_top.csv"):
        assert visitor.get(page).status_code == 401
    assert visitor.get("/?token=wrong").status_code == 401
    assert visitor.get("/?token=secret").status_code == 302
    assert visitor.get("/").status_code == 200, "the cookie is enough from then on"


def test_another_site_may_not_call(tmp_path: Path) -> None:
    visitor = client(tmp_path)
    answer = visitor.post("/_dash-update-component", json={}, headers={"Origin": "http://evil"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/export/kernel_top.csv", 200),
        ("/export/kernel_top.parquet?ranks=0", 200),
        ("/export/kernel_top.csv?o.n=x", 400),
        ("/export/nonsense.csv", 404),
        ("/export/kernel_top.exe", 404),
        ("/timeline/view?start=0&end=10&width=x", 400),
        ("/timeline/view?start=0&end=10&width=99999999", 200),
        ("/timeline/view?start=0&end=nan&width=9", 400),
        ("/timeline/view?start=0&end=10&width=9&lanes=0..99", 400),
        ("/timeline/event?id=0", 200),
        ("/timeline/event?ref=kernels:0:0", 200),
        ("/timeline/event?ref=kernels:0:9", 404),
        ("/timeline/event?id=99", 404),
        ("/timeline/jump?how=next&text=gem", 200),
        ("/timeline/stats?start=0&end=x", 400),
        ("/timeline/nonsense", 400),
        ("/assets/../app.py", 404),
    ],
)
def test_requests_are_answered_or_refused(tmp_path: Path, url: str, code: int) -> None:
    assert client(tmp_path).get(url).status_code == code
