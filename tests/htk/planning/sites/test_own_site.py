"""Where a site's file is looked for, and what plan and whatif say of it."""

import json
from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.faces.cli import main
from htk.planning.sites.own_site import own_site_file, site_in_use
from htk.planning.sites.site import GpuAtSite, Rate, Site
from htk.planning.sites.site_file import write_site
from htk.whatif.api import whatif

FIGURES = GpuAtSite(Rate(0.9, 3), Rate(0.8, 3), Rate(0.7, 3), Rate(0.6, 3))
SITE = Site({"h100": FIGURES, "h200": FIGURES, "a100-80gb": FIGURES})
PLAN = ("plan", "--model", "llama2-7b", "--gpu", "h100", "--strategy", "ddp")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of settings, with nothing in it yet."""
    monkeypatch.delenv("HTK_SITE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    file = own_site_file()
    file.parent.mkdir(parents=True)
    return file


def test_the_users_own_file_holds_unless_another_is_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site_in_use() is None, "there is none"
    write_site(SITE, home)
    used = site_in_use()
    assert used is not None and (used.site, used.path) == (SITE, home)
    other = tmp_path / "other.toml"
    write_site(Site({"h100": FIGURES}), other)
    named = site_in_use(str(other))
    assert named is not None and set(named.site.gpus) == {"h100"}
    monkeypatch.setenv("HTK_SITE", str(other))
    by_environment = site_in_use()
    assert by_environment is not None and by_environment.path == other
    assert site_in_use("none") is None
    monkeypatch.setenv("HTK_SITE", "none")
    assert site_in_use() is None
    assert site_in_use(str(other)) is not None, "what is named overrules"


def test_a_plan_says_whose_figures_it_used(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, texts = [], []
    for words in ((), ("--site", "none")):
        write_site(SITE, home)
        assert main.run_command_line([*PLAN, "--format", "json", *words]) == 0
        rows.append(json.loads(capsys.readouterr().out))
        assert main.run_command_line([*PLAN, *words]) == 0
        texts.append(capsys.readouterr().out)
    here, without = rows
    assert here["coverage"]["site"] == str(home) and "site" not in without["coverage"]
    assert f"site: {home}" in texts[0] and "site:" not in texts[1]
    assert here["rows"][0]["step_time_ns"] > without["rows"][0]["step_time_ns"]
    assert here["coverage"]["sigma"] < without["coverage"]["sigma"]
    assert main.run_command_line([*PLAN, "--search", "--global-batch", "8"]) == 0
    assert f"site: {home}" in capsys.readouterr().out


def test_a_what_if_by_the_site_is_narrower_and_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_site(SITE, home)
    answers = []
    for words in ((), ("--site", "none")):
        assert (
            main.run_command_line(
                ["whatif", "sample", "--hardware", "h200", "--format", "json", *words]
            )
            == 0
        )
        answers.append(json.loads(capsys.readouterr().out))
    here, without = answers
    assert here["coverage"]["site"] == str(home) and "site" not in without["coverage"]
    rows = [answer["rows"][0] for answer in answers]
    assert rows[0]["step_time_ns"] == rows[1]["step_time_ns"], "the same shares of both GPUs"
    widths = [r["step_time_ns_hi90"] / r["step_time_ns_lo90"] for r in rows]
    assert widths[0] < widths[1]
    assert "this site's recordings of both GPUs" in rows[0]["assumptions"]
    by_python = whatif("sample").change("hardware", "h200").run().to_pylist()[0]
    assert by_python["step_time_ns_hi90"] == rows[0]["step_time_ns_hi90"]
    assert main.run_command_line(["whatif", "sample", "--hardware", "h200"]) == 0
    assert f"site: {home}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[h100]\nproducts = 3\n", "were expected"),
        (b"\xff\xfe", "not readable as a site"),
        (b"[" * 100_000, "not TOML"),
        (b"#" * (2 << 20), "too large for a site"),
        (b"[h100]\n" + b"[h100]\n", "not TOML"),
        (b"[h100]\nproducts = {ratio = 1e-9, recordings = 1}\n", "out of range"),
    ],
)
def test_a_damaged_file_of_the_users_is_one_line_that_names_it(
    content: bytes, message: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.write_bytes(content)
    for words in (PLAN, ("whatif", "sample", "--batch", "2x")):
        assert main.run_command_line(list(words)) == 2
        error = capsys.readouterr().err
        assert message in error and str(home) in error and error.count("\n") == 1


def test_a_file_that_is_none_is_said(home: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(UsageError, match="not readable as a site"):
            site_in_use(str(path))
    with pytest.raises(UsageError, match="too large"):
        site_in_use("/dev/zero")
    home.mkdir()
    assert site_in_use() is None, "a folder of that name is no file"
