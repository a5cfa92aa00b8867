"""A package that adds a parser, an analysis and an edit is installed, and is there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, as pip installs it, somewhere that only this test looks."""
    folder, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source")
    for file in (ROOT / "tests/plugin_package").rglob("*.*"):
        if file.suffix in (".py", ".toml"):
            target = source / file.relative_to(ROOT / "tests/plugin_package")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "laps.txt").write_text("STOPWATCH\none 7\ntwo 9\n")
    return folder


def ran(folder: Path, *args: str, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, *args], env=environment, capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_its_analysis_is_a_command(installed: Path) -> None:
    answer = json.loads(ran(installed, "-m", "htk", "slowest-lap", "laps.txt", "--format", "json"))
    assert answer["rows"] == [{"slowest_ns": 9}]
    options = ("slowest-lap", "laps.txt", "--handicap-ns", "5", "--format", "csv")
    assert "14" in ran(installed, "-m", "htk", *options)
    assert "from the package htk_stopwatch-1.2.0" in ran(installed, "-m", "htk", "--help")
    assert "slowest-lap" in ran(installed, "-m", "htk", "analyses")
    assert "Which lap was the slowest?" in ran(installed, "-m", "htk", "slowest-lap", "--help")


def test_its_analysis_is_in_a_notebook_and_in_the_dashboard(installed: Path) -> None:
    code = (
        "import htk; from htk.dashboard.questions import menu_of; t = htk.open('laps.txt');"
        "print(t.slowest_lap(handicap_ns=1).to_pylist(), 'slowest_lap' in dir(t),"
        " menu_of(t)['Others'])"
    )
    said = ran(installed, "-c", code)
    assert "[{'slowest_ns': 10}] True" in said and "('slowest_lap', 'slowest lap'," in said


def test_its_format_is_read_and_its_edit_known(installed: Path) -> None:
    assert "stopwatch" in ran(installed, "-m", "htk", "formats")
    assert "--tailwind VALUE" in ran(installed, "-m", "htk", "whatif", "--help")
    code = "from htk.whatif.edits import find_edit; print(find_edit('tailwind').HELP)"
    assert "Metres per second." in ran(installed, "-c", code)


def test_help_does_not_import_it(installed: Path) -> None:
    code = (
        "import sys; from htk.faces.cli.main import run_command_line; run_command_line(['--help']);"
    )
    code += "print([m for m in sys.modules if 'stopwatch' in m or m == 'importlib.metadata'])"
    assert ran(installed, "-c", code).rstrip().endswith("[]")


def test_one_that_is_broken_is_named_and_left_out(installed: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "broken-0.1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(
        "[htk.analyses]\nnothing = broken_module:nothing\nkernel_top = broken_module:top\n"
        "[htk.parsers]\nnothing = broken_module\n"
    )
    (tmp_path / "broken_module.py").write_text("raise ValueError('half written')\n")
    (tmp_path / "laps.txt").write_text("STOPWATCH\none 7\n")
    said = ran(tmp_path, "-m", "htk", "nothing", "sample", code=1)
    assert "'nothing' of the package broken-0.1 cannot be loaded: ValueError: half written" in said
    assert "Traceback" not in said
    known = ran(tmp_path, "-m", "htk", "kernel-top", "sample", "--n", "1")
    assert "gemm" in known or "nccl" in known, "htk's own analysis stays"
    for command in (("doctor", "sample"), ("help", "bubble")):
        answer = ran(tmp_path, "-m", "htk", *command)
        assert "'nothing' of the package broken-0.1 cannot be loaded" in answer
    assert "pipeline-bubble" in answer
    code = "from htk.faces.mcp.tools import list_tools; print(len(list(list_tools(None))))"
    assert int(ran(tmp_path, "-W", "ignore", "-c", code)) > 60


def test_the_page_shows_the_package_that_is_tested() -> None:
    page = (ROOT / "docs/extending.md").read_text()
    files = [
        p.read_text()
        for p in (ROOT / "tests/plugin_package").rglob("*")
        if p.suffix in (".py", ".toml")
    ]
    own = page.partition("## In htk itself")[0]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)\n```", own, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        assert any(block in text for text in files), block
