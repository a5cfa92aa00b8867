"""Adding a parser or an analysis touches its own module, its line in the list, its sample."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("htk", "parsers", "analyses", "dashboard")

PARSER = '''"""Stopwatch logs: the word STOPWATCH, then a name and nanoseconds on each line."""

import pyarrow as pa

from htk.base.columns.arrow import build_table, build_numbers, build_texts, drop_fields
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.schema import TABLES

NAME = "stopwatch"


def sniff(head: Head) -> bool:
    return head.data.startswith(b"STOPWATCH")


def parse(source: Source, options: ParseOptions) -> Parsed:
    with source.open() as file:
        rows = [line.split() for line in file.read().decode().splitlines()[1:]]
    ends = build_numbers([int(ns) for _, ns in rows], pa.int64())
    columns = {"name": build_texts([name for name, _ in rows]), "end_ns": ends}
    schema = drop_fields(TABLES["cpu_ops"], "rank", "cycle")
    return Parsed({"cpu_ops": build_table(schema, columns, len(rows))}, rank=0)
'''

ANALYSIS = '''"""The slowest lap."""

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.core.analysis import analysis
from htk.base.schema import table


@analysis(returns=table(slowest_ns=(pa.int64(), "The slowest lap.")), needs=("cpu_ops",))
def slowest_lap(cpu_ops: pa.Table) -> pa.Table:
    """Which lap was the slowest?"""
    longest = pc.max(cpu_ops["end_ns"]).as_py()
    return pa.table([pa.array([longest])], schema=slowest_lap.returns)
'''


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code as it is, somewhere else."""
    for room in ROOMS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, tmp_path / room, symlinks=True, ignore=ignore)
    return tmp_path


def test_a_parser_and_an_analysis_are_added(copy: Path) -> None:
    (copy / "parsers/stopwatch.py").write_text(PARSER)
    registry = copy / "parsers/__init__.py"
    registry.write_text(
        registry.read_text().replace('"job_layout",\n', '"job_layout",\n    "stopwatch",\n')
    )
    (copy / "analyses/time/slowest_lap.py").write_text(ANALYSIS)
    _run(copy, "-m", "htk.analyses.menu")
    sample = copy / "laps.txt"
    sample.write_text("STOPWATCH\none 7\ntwo 9\n")
    answer = json.loads(_run(copy, "-m", "htk", "slowest-lap", str(sample), "--format", "json"))
    assert answer["rows"] == [{"slowest_ns": 9}]
    assert "slowest-lap" in _run(copy, "-m", "htk", "--help")
    assert "stopwatch" in _run(copy, "-m", "htk", "formats")
    assert _changed(copy) == {
        "analyses/__init__.py",
        "analyses/time/slowest_lap.py",
        "parsers/__init__.py",
        "parsers/stopwatch.py",
    }


def _run(folder: Path, *args: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _changed(copy: Path) -> set[str]:
    """Files that are new or differ from the original."""
    found = set()
    for room in ROOMS[1:]:
        for path in (copy / room).rglob("*.py"):
            original = ROOT / path.relative_to(copy)
            if not original.exists() or not filecmp.cmp(path, original, shallow=False):
                found.add(str(path.relative_to(copy)))
    return found
