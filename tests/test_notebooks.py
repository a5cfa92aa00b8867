"""The notebooks of the docs run from beginning to end."""

from pathlib import Path

import pytest

from tests.thinned import thinned

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/notebooks").glob("*.ipynb"))


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", thinned(NOTEBOOKS, 3), ids=lambda p: p.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # else all share one history
    notebook = nbformat.read(path, as_version=4)
    stored = [len(cell.get("outputs", [])) for cell in notebook.cells]
    client = nbclient.NotebookClient(
        notebook,
        timeout=240,
        startup_timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": tmp_path}},
    )
    client.execute()  # an error in a cell is an error here
    assert [len(cell.get("outputs", [])) for cell in notebook.cells] == stored
