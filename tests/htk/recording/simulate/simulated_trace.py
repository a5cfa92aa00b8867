"""A simulated job as htk opens it, and its truth."""

import json
from pathlib import Path
from typing import Any

import htk
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job


def written(config: Config, folder: Path) -> tuple[Any, Any]:
    """Write a job; returns its trace and what is true of it."""
    simulate_job(check_config(config), folder)
    return htk.open(folder, cache=False), json.loads((folder / "truth.json").read_text())
