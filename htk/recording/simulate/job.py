"""A whole simulated job: one step after the other, each written before the next is made."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from htk.base.columns.types import fill_none
from htk.base.errors import UsageError
from htk.recording.simulate.config import Config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.instructions import Do, RankProgram
from htk.recording.simulate.plants import Plants
from htk.recording.simulate.program import build_programs
from htk.recording.simulate.schedule import Schedule, Timed
from htk.recording.simulate.truth import Truth
from htk.recording.simulate.writer import Writer


def simulate_job(config: Config, folder: Path) -> list[Path]:
    """Write a trace for each rank and what is true of them; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = process_groups(config)
    usual = build_programs(config)
    schedule = Schedule(config, usual, groups)
    _must_run(schedule.plants, usual)
    paths = [folder / f"{_file_name(config, rank)}.pt.trace.json.gz" for rank in config.written]
    writers = [
        Writer(config, rank, groups, path) for rank, path in zip(config.written, paths, strict=True)
    ]
    sidecar = folder / "truth.json"
    with ExitStack() as opened:
        aside = opened.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        exchanges = opened.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        truth = Truth(config, groups, aside, exchanges)
        for stages in _simulate_steps(config, schedule):
            never = fill_none(config.ranks)
            truth.add(stages, schedule.now if stages[0].recorded else never)
            for writer in writers:
                writer.step(stages[writer.rank // config.stage_ranks])
        truth.write(sidecar)
    for writer in writers:
        writer.close()
    return [*paths, sidecar]


def _file_name(config: Config, rank: int) -> str:
    """Return how a rank's file begins; servers side by side are jobs of their own."""
    replica, own = divmod(rank, config.job_ranks)
    several = config.ranks > config.job_ranks
    return f"replica{replica}_rank{own}" if several else f"rank{rank}"


def _must_run(plants: Plants, usual: list[RankProgram]) -> None:
    """Raise UsageError unless the kernel planted as slow is one of the job's."""
    names = {
        what[0].name
        for stage in usual
        for do, what in zip(stage.do, stage.what, strict=True)
        if do in (Do.LAUNCH, Do.NODE)
    }
    if plants.has("regressed_kernel") and not any(plants.regressed in name for name in names):
        raise UsageError(
            f"regressed_kernel: no kernel of the job has {plants.regressed!r} in its name;"
            f" there are {', '.join(sorted(names))}"
        )


def _simulate_steps(config: Config, schedule: Schedule) -> Iterator[list[Timed]]:
    """Yield what reaches into the recording from before, then the recorded steps; by stage."""
    if config.stagger_us:
        yield schedule.warm_up()
    if config.carry_in:
        yield schedule.carry_in()
    for number in range(config.first_step, config.first_step + config.steps):
        yield schedule.step(number)
