"""JupyterLab asks for no build, whatever extensions others bring."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

FOLDER = "etc/jupyter/labconfig/page_config.d"


def test_an_installed_setting_leaves_the_look_for_builds_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytest.importorskip("jupyterlab_server.config")
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    (file,) = packed["data-files"][FOLDER]
    assert json.loads((ROOT / file).read_text()) == {"buildCheck": False}
    installed = tmp_path / FOLDER
    installed.mkdir(parents=True)
    shutil.copy(ROOT / file, installed)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "etc/jupyter"))
    assert config.get_static_page_config()["buildCheck"] is False
