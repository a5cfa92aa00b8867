"""A simulated job as htk opens it, and its truth."""

import json
from pathlib import Path
from typing import Any

import htk
from htk.recording.simulate.config import Config, checked
from htk.recording.simulate.job import simulate


def written(config: Config, folder: Path) -> tuple[Any, Any]:
    """Write a job; returns its trace and what is true of it."""
    simulate(checked(config), folder)
    return htk.open(folder, cache=False), json.loads((folder / "truth.json").read_text())
