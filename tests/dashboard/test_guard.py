"""Who may look, and what the pages may load."""

from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.dashboard.app import create_app
from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, of_rank, write


def client(tmp_path: Path, token: str | None = None) -> Any:
    path = write(tmp_path / "t.json", kernel("gemm", 1, 2), **of_rank(0))
    return create_app(
        Runs(trace=open_trace(path, OpenOptions(cache=False))), token=token
    ).server.test_client()


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


def test_another_name_for_this_machine_is_not_ours(tmp_path: Path) -> None:
    visitor = client(tmp_path)
    assert visitor.get("/", headers={"Host": "evil.example:8050"}).status_code == 403
    for host in ("127.0.0.1:8050", "localhost", "[::1]:8050"):
        assert visitor.get("/", headers={"Host": host}).status_code == 200


def test_two_servers_of_a_machine_keep_their_cookies_apart(tmp_path: Path) -> None:
    answers = [
        client(tmp_path, token="secret").get("/?token=secret", headers={"Host": host})
        for host in ("localhost:8050", "localhost:8051", "[::1]:8050", "node")
    ]
    names = [a.headers["Set-Cookie"].partition("=")[0] for a in answers]
    assert names == ["htk_token_8050", "htk_token_8051", "htk_token_8050", "htk_token_default"]
    assert all("SameSite=Lax" in a.headers["Set-Cookie"] for a in answers)


def test_any_loopback_address_is_this_machine(tmp_path: Path) -> None:
    visitor = client(tmp_path)
    assert visitor.get("/", headers={"Host": "127.0.0.2:8050"}).status_code == 200
    assert visitor.get("/", headers={"Host": "10.0.0.2:8050"}).status_code == 403


def test_errors_are_plain_text(tmp_path: Path) -> None:
    visitor = client(tmp_path)
    for url in (
        "/export/kernel_top.csv?run=<meta>",
        "/export/x.csv",
        "/export/kernel_top.csv?o.n=<b>",
    ):
        assert visitor.get(url).mimetype == "text/plain", url
    assert client(tmp_path, token="secret").get("/").mimetype == "text/plain"


MALFORMED: list[Any] = [
    7, "x", [], [1], {}, {"output": 1}, {"output": None}, {"output": []}, {"output": "x.y"},
    {"output": "..x.y..", "outputs": 3, "inputs": "x"}, {"inputs": [{}]}, {"changedPropIds": 7},
    {"output": "page.children", "inputs": 7}, {"output": "page.children", "inputs": [[[]]]},
    {"output": "page.children", "outputs": [], "inputs": [], "state": {}},
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED, ids=str)
def test_callbacks_of_no_page_are_refused_in_a_line(
    tmp_path: Path, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = client(tmp_path)
    answer = visitor.post("/_dash-update-component", json=body)
    assert (answer.status_code, answer.mimetype) == (400, "text/plain")
    assert not caplog.text


def test_every_callback_without_its_inputs_is_refused_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "t.json", kernel("gemm", 1, 2), **of_rank(0))
    app = create_app(Runs(trace=open_trace(path, OpenOptions(cache=False))))
    visitor = app.server.test_client()
    visitor.get("/_dash-dependencies")  # callbacks are registered by the first request
    bodies = [{"output": output, "outputs": [], "inputs": []} for output in app.callback_map]
    answers = [visitor.post("/_dash-update-component", json=body) for body in bodies]
    assert len(answers) > 10
    assert {answer.status_code for answer in answers} <= {200, 204, 400}
    assert not caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "_dash-component-suites/dash/../x",
        "_dash-component-suites/x/y.js",
        "_dash-layout/%ff",
        "%c0",
    ],
)
def test_addresses_of_no_page_are_refused_in_a_line(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client(tmp_path).get(f"/{path}")
    assert answer.status_code in (200, 400, 404) and not caplog.text
    assert client(tmp_path).post("/_dash-update-component", data=b"{").status_code in (400, 415)


@pytest.mark.parametrize("path", ["\0", "a" * 100_000, "~nobody-here/x", "/" + "b/" * 5000])
def test_what_is_no_path_is_refused(tmp_path: Path, path: str) -> None:
    runs = Runs([tmp_path])
    for asked in (runs.key_of, lambda text: runs.path_of(f"{tmp_path.name}/{text}")):
        with pytest.raises(UsageError):
            asked(path)
    visitor = create_app(runs).server.test_client()
    query = {"run": f"{tmp_path.name}/{path}"}
    assert visitor.get("/export/kernel_top.csv", query_string=query).status_code == 400


@pytest.mark.parametrize("address", ["/%00", "/kernels%00.csv", "/" + "a" * 5000])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    response = client(tmp_path).get(address)
    assert (response.status_code, response.mimetype) == (400, "text/plain")


@pytest.mark.parametrize(
    "options",
    [
        ["--token", "short"],
        ["--token", "with a space"],
        ["--no-token", "--token", "12345678"],
        ["--no-token", "--bind", "0.0.0.0"],
    ],
)
def test_a_token_is_long_and_plain(options: list[str]) -> None:
    from click.testing import CliRunner

    from htk.faces.cli.commands.dashboard import command

    found = CliRunner().invoke(command, ["sample", "--no-browser", *options])
    assert found.exit_code == 2 and "token" in found.output


def test_the_token_leads_to_the_page_asked_for_and_nowhere_else(tmp_path: Path) -> None:
    visitor = client(tmp_path, token="secret")
    answer = visitor.get("/kernels?ranks=1&token=secret")
    assert answer.headers["Location"] == "/kernels?ranks=1"
    assert "HttpOnly" in answer.headers["Set-Cookie"]
    odd = {"PATH_INFO": "//evil.example/x"}
    answer = visitor.get("/", query_string="token=secret", environ_overrides=odd)
    assert answer.headers["Location"] == "/evil.example/x"
    assert visitor.get("/?token=%C3%A4").status_code == 200, "the cookie is there"
    assert client(tmp_path, token="secret").get("/?token=%C3%A4").status_code == 401


def test_an_upload_needs_a_header_that_no_form_can_send(tmp_path: Path) -> None:
    visitor = client(tmp_path)
    assert visitor.post("/upload?name=x.json", data=b"{}").status_code == 403
    sent = visitor.post("/upload?name=x.json", data=b"{}", headers={"X-Htk-Upload": "1"})
    assert sent.status_code == 200 and sent.text.startswith("upload/")
    none = visitor.post("/upload?name=x.json", data=b"", headers={"X-Htk-Upload": "1"})
    assert none.status_code == 413


def test_debug_is_for_this_machine_alone() -> None:
    from click.testing import CliRunner

    from htk.faces.cli.commands.dashboard import command

    found = CliRunner().invoke(command, ["sample", "--bind", "0.0.0.0", "--debug"])
    assert found.exit_code == 2 and "this machine alone" in found.output


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("/export/kernel_top.csv", 200),
        ("/export/kernel_top.parquet?ranks=0", 200),
        ("/export/kernel_top.csv?o.n=x", 400),
        ("/export/nonsense.csv", 404),
        ("/export/diff.csv?o.base=0&o.new=0&o.by=kernel", 200),
        ("/export/diff.csv?o.by=nonsense", 400),
        ("/export/kernel_top.csv?run=../x", 400),
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
