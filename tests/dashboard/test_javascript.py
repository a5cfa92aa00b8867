"""The page's own code: its unit tests run under node, and it writes numbers as Python does."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from htk.base.core.humanize import format_bytes, format_duration

ROOT = Path(__file__).parents[2]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")

_FORMAT = """
globalThis.window = {};
require("vm").runInThisContext(require("fs").readFileSync(process.argv[1], "utf8"));
const { htkTime, htkSize } = window.dashAgGridFunctions;
const values = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(values.map((v) => [htkTime(v), htkSize(v)])));
"""


@needs_node
def test_tables_in_a_page_write_times_and_sizes_as_commands_do() -> None:
    dice = random.Random(11)
    drawn = (dice.randrange(1 << dice.randrange(1, 52)) | 1 for _ in range(3_000))
    values = [0, *(value for value in drawn if value % 5)]  # no ties, which each rounds its way
    values += [unit + off for unit in (10**3, 10**6, 10**9, 1 << 10, 1 << 20) for off in (-1, 0, 1)]
    values += [-value for value in values[1:]]
    done = subprocess.run(
        ["node", "-e", _FORMAT, "dashboard/assets/dashAgGridFunctions.js"],
        cwd=ROOT,
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert json.loads(done.stdout) == [[format_duration(v), format_bytes(v)] for v in values]


@needs_node
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
