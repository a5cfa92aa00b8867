"""A whole simulated job: one step after the other, each written before the next is made."""

import json
from pathlib import Path

import numpy as np

from htk.simulate.config import Config
from htk.simulate.groups import process_groups
from htk.simulate.program import program
from htk.simulate.schedule import Schedule
from htk.simulate.truth import Truth
from htk.simulate.writer import Writer


def simulate(config: Config, folder: Path) -> list[Path]:
    """Write a trace for each rank and what is true of them; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = process_groups(config)
    schedule = Schedule(config, program(config), groups)
    paths = [folder / f"rank{rank}.pt.trace.json.gz" for rank in config.written]
    truth = Truth(config, groups)
    writers = [
        Writer(config, rank, groups, path) for rank, path in zip(config.written, paths, strict=True)
    ]
    steps = range(config.first_step, config.first_step + config.steps)
    for number in [None, *steps]:
        if number is None and not config.carry_in:
            continue
        timed = schedule.carry_in() if number is None else schedule.step(number)
        truth.add(timed, schedule.now if timed.recorded else np.full(config.ranks, -1, np.int64))
        for writer in writers:
            writer.step(timed)
    for writer in writers:
        writer.close()
    sidecar = folder / "truth.json"
    sidecar.write_text(json.dumps(truth.told(), indent=None) + "\n", encoding="utf-8")
    return [*paths, sidecar]
