"""The page's own code: its unit tests run under node, its types hold."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_timeline_engine_under_node() -> None:
    done = subprocess.run(
        ["node", "--test", "tests/dashboard/js/"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "# fail 0" in done.stdout and "# pass 0" not in done.stdout
