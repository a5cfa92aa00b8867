"""A small simulated job on two nodes of two GPUs, with jitter, noise and contention."""

from pathlib import Path

import numpy as np

from htk.quantities.graph.build import steps_at_hand
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace

BASE = {
    "model": "gpt3-126m",
    "layers": 4,
    "seq": 1024,
    "nodes": 2,
    "gpus_per_node": 2,
    "micro_batch": 8,
    "steps": 4,  # a loader that is late once moves the median of three steps little
    "seed": 3,
}


def written(folder: Path, **change: object) -> Path:
    simulate_job(check_config(Config(**(BASE | change))), folder)  # type: ignore[arg-type]
    (folder / "truth.json").unlink()
    return folder


def step_ns(folder: Path) -> float:
    steps = steps_at_hand(open_trace(str(folder)).tables)
    return float(np.median([steps.periods[k] for k in steps.numbers[1:]]))
