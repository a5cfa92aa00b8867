"""A whole simulated job: one step after the other, each written before the next is made."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from htk.simulate.config import Config
from htk.simulate.groups import process_groups
from htk.simulate.program import program
from htk.simulate.schedule import Schedule, Timed
from htk.simulate.truth import Truth
from htk.simulate.writer import Writer


def simulate(config: Config, folder: Path) -> list[Path]:
    """Write a trace for each rank and what is true of them; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = process_groups(config)
    schedule = Schedule(config, program(config), groups)
    paths = [folder / f"rank{rank}.pt.trace.json.gz" for rank in config.written]
    writers = [
        Writer(config, rank, groups, path) for rank, path in zip(config.written, paths, strict=True)
    ]
    sidecar = folder / "truth.json"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as aside:
        truth = Truth(config, groups, aside)
        for timed in _steps(config, schedule):
            never = np.full(config.ranks, -1, np.int64)
            truth.add(timed, schedule.now if timed.recorded else never)
            for writer in writers:
                writer.step(timed)
        truth.write(sidecar)
    for writer in writers:
        writer.close()
    return [*paths, sidecar]


def _steps(config: Config, schedule: Schedule) -> Iterator[Timed]:
    """Those that are recorded, and what of others reaches into the recording."""
    if config.stagger_us:
        yield schedule.warm_up()
    if config.carry_in:
        yield schedule.carry_in()
    for number in range(config.first_step, config.first_step + config.steps):
        yield schedule.step(number)
