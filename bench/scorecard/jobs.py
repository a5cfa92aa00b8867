"""Simulated jobs: their trace files, with nothing beside them, and how long their steps take."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from htk.physics.hardware import Gpu
from htk.recording.simulate.config import TILES, Config, Pass
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.instructions import RankProgram
from htk.recording.simulate.job import simulate_job
from htk.recording.simulate.program import build_programs
from htk.recording.simulate.schedule import Schedule
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.recorded_step import Baseline

_EFFICIENCY, _NETWORK = 0.15, 0.30

Change = Callable[[RankProgram], RankProgram]


@dataclass(frozen=True)
class Job(Config):
    """A configuration on a cluster whose true rates no trace tells."""

    compute: float = 1.0  # matrix products, times the catalogue's
    bandwidth: float = 1.0  # of memory
    tile_sizes: tuple[tuple[int, int, float], ...] = TILES
    attention_rate: tuple[float, float] = (0.52, 0.62)  # pyright: ignore[reportIncompatibleMethodOverride]
    passes: tuple[Pass, ...] = ()  # of a norm; none: the simulator's own
    optimizer_ranks: float | None = None
    bucket_bytes: int = 25 << 20  # pyright: ignore[reportIncompatibleMethodOverride]
    gradients_sent: float = 1.0  # pyright: ignore[reportIncompatibleMethodOverride]
    gathers_ahead: int = 2  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def norm(self) -> tuple[Pass, ...]:
        return self.passes or super().norm

    @property
    def owners(self) -> float:
        return self.optimizer_ranks or super().owners

    @property
    def device(self) -> Gpu:
        plain = super().device
        best = plain.achievable_half_tflops
        return replace(
            plain,
            achievable_bf16_tflops=best * self.compute,
            memory_gbps=plain.memory_gbps * self.bandwidth,
        )

    @property
    def tiles(self) -> tuple[tuple[int, int, float], ...]:
        return self.tile_sizes

    def drawn(self, seed: int) -> Self:
        """The same job on the cluster of a seed: efficiencies, links, tiles; contention and the
        finer constants are drawn by the simulator."""
        draw = np.random.default_rng([seed, 101])

        def about(spread: float) -> float:
            return float(draw.uniform(1 - spread, 1 + spread))

        plain = super().device
        return replace(
            self,
            seed=seed,
            compute=about(_EFFICIENCY),
            bandwidth=about(_EFFICIENCY),
            intra_gbps=plain.scale_up_gbps * about(_NETWORK),
            inter_gbps=plain.scale_out_gbps * self.gpus_per_node * about(_NETWORK),
            intra_latency_us=self.intra_latency_us * about(_NETWORK),
            inter_latency_us=self.inter_latency_us * about(_NETWORK),
            tile_sizes=(TILES[0], *((t, w, rate * about(0.08)) for t, w, rate in TILES[1:])),
        )

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)


def staged(job: Job, *others: Job) -> Baseline:
    """What the predictor starts from: trace files, alone in a folder, and further recordings."""
    with ExitStack() as folders:
        recorded = []
        for each in (job, *others):
            folder = folders.enter_context(TemporaryDirectory())
            write(each, Path(folder))
            recorded.append(open_trace(folder, OpenOptions(cache=False)).tables)
        return build_baseline(recorded[0], [(tables, None) for tables in recorded[1:]])


def write(job: Job, folder: Path) -> None:
    for path in simulate_job(job, folder):
        if path.name == "truth.json":
            path.unlink()


def step_ns(job: Job, change: Change | None = None) -> float:
    """The median step of the GPUs, the first left out; nothing is written."""
    usual = [change(stage) if change else stage for stage in build_programs(job)]
    schedule = Schedule(job, usual, process_groups(job))
    done, periods = schedule.gpus_done, []
    for number in range(job.first_step, job.first_step + job.steps):
        schedule.step(number)
        periods.append(float((schedule.gpus_done - done).mean()))
        done = schedule.gpus_done
    return float(np.median(periods[1:]))
