"""What a build packs: the same from a checkout with symbolic links and from one without."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKED = ("parsers", "analyses", "dashboard")
BUILD_FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "NOTICE")

pytest.importorskip("setuptools", reason="building needs setuptools")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without symbolic links: git writes a file that holds the link's target."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    skip = shutil.ignore_patterns("__pycache__", "*.so", *LINKED)
    shutil.copytree(ROOT / "htk", folder / "htk", ignore=skip)
    skip = shutil.ignore_patterns("__pycache__")
    for name in LINKED:
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
        (folder / "htk" / name).write_text(f"../{name}")
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_a_checkout_without_links_packs_every_package(checkout: Path) -> None:
    packed = _build(checkout)
    assert packed.returncode == 0, packed.stderr[-2000:]
    without_links = _files(checkout / "packed")
    for name in LINKED:
        (checkout / "htk" / name).unlink()
        (checkout / "htk" / name).symlink_to(f"../{name}")
    shutil.rmtree(checkout / "packed")
    packed = _build(checkout)
    assert packed.returncode == 0, packed.stderr[-2000:]
    with_links = _files(checkout / "packed")
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "parsers").rglob("*.py")}
    assert {f"htk/{module}" for module in modules} <= without_links
    assert "htk/dashboard/assets/style.css" in without_links
    assert without_links == with_links


def test_a_checkout_without_a_package_stops_with_one_line(checkout: Path) -> None:
    shutil.rmtree(checkout / "analyses")
    packed = _build(checkout)
    assert packed.returncode == 1
    assert packed.stderr.splitlines() == [
        "error: neither htk/analyses nor analyses is a folder: check out all of htk"
    ]


def _build(checkout: Path) -> subprocess.CompletedProcess[str]:
    shutil.rmtree(checkout / "build", ignore_errors=True)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "packed"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
