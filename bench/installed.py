"""A wheel of the checkout in an environment of its own: how fast htk starts is a matter of how it
was installed, and an editable checkout looks for each module twice."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]


def install_wheel(folder: Path) -> Path:
    """Return the Python of a new environment that holds htk's wheel, and this one's libraries."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # what is no longer there would be packed
    wheels = folder / "wheels"
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT))
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "env"))
    python = folder / "env/bin/python"
    _pip("--python", str(python), "install", "--no-deps", str(next(wheels.glob("*.whl"))))
    libraries = next((folder / "env/lib").glob("python*/site-packages"))
    # Packages of that folder, but not its own .pth files: no editable checkout comes along.
    (libraries / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def _pip(*words: str) -> None:
    _run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words)


def _run(*words: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # of the checkout
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)[:200]}: {done.stderr.strip()[-500:]}")
