"""Packages that are optional: imported where they are needed, named where they are missing."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from htk.base.core.extras import EXTRAS, require_extra
from htk.base.errors import MissingPackage

ROOT = Path(__file__).parents[4]
OPTIONAL = {name for names in EXTRAS.values() for name in names} | {"flask"}  # which dash brings
GUARDED = ("dashboard", "htk/hta")  # their __init__ requires what the modules below import
# Used through another module alone, which requires what they import.
BEHIND = {
    "htk/faces/mcp/checked_tool.py": "htk/faces/mcp/server.py",
    "htk/answers/output/figure_frame.py": "htk/answers/output/figures.py",
    "htk/answers/output/figure_marks.py": "htk/answers/output/figures.py",
    "htk/answers/output/population.py": "htk/answers/output/figures.py",
    "htk/answers/output/rank_map.py": "htk/answers/output/figures.py",
    "htk/answers/output/step_bands.py": "htk/answers/output/figures.py",
    "htk/recording/triggers.py": "htk/recording/capture.py",
    "htk/verdicts/query/engine.py": "htk/verdicts/query/worker.py",
}
_NAMED = re.compile(rf"^\s*(?:import|from)\s.*\b(?:{'|'.join(OPTIONAL)})\b", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
import importlib.util
importlib.util.find_spec = lambda name, real=importlib.util.find_spec: (
    None if name.partition(".")[0] in {names!r} else real(name))
"""


def _sources() -> list[Path]:
    folders = (ROOT / name for name in ("htk", "parsers", "analyses", "dashboard"))
    return [path for folder in folders for path in folder.rglob("*.py")]


def _optional_imports(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names} & OPTIONAL
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]} & OPTIONAL
    return set()


def _is_guarded(path: Path) -> bool:
    relative = path.relative_to(ROOT).as_posix().replace("htk/dashboard/", "dashboard/")
    return any(relative.startswith(f"{folder}/") for folder in GUARDED)


def test_optional_packages_are_imported_only_where_they_are_required() -> None:
    offenders = []
    for path in _sources():
        text = path.read_text(encoding="utf-8")
        if not _NAMED.search(text):
            continue
        tree = ast.parse(text)
        at_top = [n for n in tree.body if _optional_imports(n)]
        anywhere = [n for n in ast.walk(tree) if _optional_imports(n)]
        name = path.relative_to(ROOT).as_posix()
        if name in BEHIND:
            text = (ROOT / BEHIND[name]).read_text(encoding="utf-8")
        is_early = bool(at_top) and name not in BEHIND
        if not _is_guarded(path) and (is_early or (anywhere and "require_extra(" not in text)):
            offenders.append(name)
    assert offenders == []
    for folder in GUARDED:
        assert "\nrequire_extra(" in (ROOT / folder / "__init__.py").read_text(encoding="utf-8")


def test_each_extra_is_declared_and_nothing_optional_is_mandatory() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS) <= set(extras)
    mandatory = {line.partition(">")[0].replace("-", "_") for line in PROJECT["dependencies"]}
    assert not mandatory & OPTIONAL
    (everything,) = extras["all"]
    named = set(everything.removeprefix("htk-trace[").removesuffix("]").split(","))
    assert named | {"all", "bench", "dev", "docs", "hta", "ray", "torch", "trainers"} == set(extras)


def test_a_missing_package_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("htk.base.core.extras.find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as raised:
        require_extra("plot", "a picture")
    assert str(raised.value) == "a picture needs plotly: pip install 'htk-trace[plot]'"
    assert raised.value.exit_code == 5


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["dashboard", "sample", "--no-browser"],
            "htk: the dashboard needs dash, plotly: pip install 'htk-trace[dashboard]'\n",
        ),
        (
            ["sql", "sample", "select 1"],
            "htk: SQL needs duckdb: pip install 'htk-trace[sql]'\n",
        ),
        (
            ["report", "sample", "-o", "report.html"],
            "htk: a report in HTML needs plotly: pip install 'htk-trace[plot]'\n",
        ),
    ],
)
def test_a_command_without_its_packages_says_so(
    words: list[str], line: str, tmp_path: Path
) -> None:
    code = WITHOUT.format(names={"dash", "duckdb", "plotly", "pandas"})
    code += (
        f"from htk.faces.cli.main import run_command_line; sys.exit(run_command_line({words!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (5, line)


def test_answers_need_no_optional_package(tmp_path: Path) -> None:
    code = WITHOUT.format(names=OPTIONAL | {"s3fs", "aiohttp", "viztracer"})
    code += (
        "from htk.faces.cli.main import run_command_line\n"
        "for words in (['summary', 'sample'], ['doctor', 'sample'],\n"
        "              ['kernel_top', 'sample', '--format', 'md'],\n"
        "              ['report', 'sample', '--no-whatif', '-o', 'report.md']):\n"
        "    assert run_command_line(words) == 0, words\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "report.md").stat().st_size > 1000
