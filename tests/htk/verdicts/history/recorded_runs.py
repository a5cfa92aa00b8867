"""Runs to keep in a history: recordings of known step times, and facts without a recording."""

from pathlib import Path

import numpy as np

from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.verdicts.history.run_facts import RunFacts
from htk.verdicts.history.tables import RUNS
from htk.verdicts.overview.summary import RETURNS as SUMMARY
from tests.kineto_file import kernel, launch, of_rank, op, step, write

BASE_NS = 1_767_225_600_000_000_000  # 1 January 2026


def recording(folder: Path, step_us: int = 100, base: int = BASE_NS, ranks: int = 2) -> Path:
    """Ranks with four steps each, of a kernel that leaves a fifth of the step idle."""
    folder.mkdir()
    for rank in range(ranks):
        ends = [100 + k * step_us for k in range(5)]  # of each step, the one before among them
        events = [
            event
            for k, end in enumerate(ends[1:])
            for event in (
                step(k, end - step_us, step_us),
                op("aten::mm", end - step_us + 2, 5),
                launch(k + 1, end - step_us + 3),
                kernel("ampere_bf16_gemm", end - 0.8 * step_us, 0.8 * step_us, k + 1),
            )
        ]
        before = kernel("ampere_bf16_gemm", ends[0], 0.2 * step_us)  # where the first step begins
        write(folder / f"rank{rank}.json", before, *events, **of_rank(rank, ranks, base))
    return folder


def facts(number: int, **row: object) -> RunFacts:
    """A run that was not recorded, for what does not depend on recordings."""
    run = f"{number:016x}"
    steps = np.array([100.0, 102.0, 98.0]) * 1e6
    costs = RecordedBaseline(3, (0,), {"time": {"total": Series(1.0, steps, steps[:1], steps)}})
    values = dict.fromkeys(RUNS.names) | {
        "run": run,
        "name": f"run{number}",
        "recorded_at": f"2026-01-{number + 1:02d}T00:00:00.000000000Z",
        "step_time_ns": 100_000_000,
        "timed_on": "gpu",
    }
    return RunFacts(values | row, costs, SUMMARY.empty_table())
