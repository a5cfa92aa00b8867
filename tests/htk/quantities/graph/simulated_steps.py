"""Steps of a simulated job as tables in memory: no file is written or read."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    build_texts,
    constant_text,
)
from htk.base.schema import DERIVED, TABLES
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.instructions import Do
from htk.recording.simulate.program import build_programs
from htk.recording.simulate.schedule import Schedule


def steps_in_memory(config: Config, slower: dict[str, float] | None = None) -> dict[str, pa.Table]:
    """What the gate reads. `slower`: kernels with such names take so many times longer."""
    schedule = Schedule(check_config(config), build_programs(config), process_groups(config))
    for word, factor in (slower or {}).items():
        schedule.plants.kernel_factor = (  # type: ignore[method-assign]
            lambda activity, step, word=word, factor=factor: (
                factor if word in activity.name else 1.0
            )
        )
    timed = [schedule.step(k)[0] for k in range(config.steps)]
    launched = [k for k, do in enumerate(timed[0].program.do) if do in (Do.LAUNCH, Do.NODE)]
    what = [timed[0].program.what[k][0] for k in launched]
    start = np.stack([t.gpu_start[launched] for t in timed])  # step, activity, rank
    end = np.stack([t.gpu_end[launched] for t in timed])
    step, _, rank = np.indices(start.shape)
    many = start.size
    columns = {
        "rank": build_numbers(rank.ravel(), pa.int32()),
        "cycle": build_numbers(np.zeros(many), pa.int32()),
        "device": build_numbers(np.zeros(many), pa.int32()),
        "start_ns": build_numbers(start.ravel(), pa.int64()),
        "end_ns": build_numbers(end.ravel(), pa.int64()),
        "name": _spread(build_texts([a.name for a in what]), config),
        "kind": _spread(build_texts([a.kind for a in what]), config),
    }
    links = {"step": build_numbers(step.ravel(), pa.int32())}
    return {
        "ranks": _ranks(config),
        "kernels": build_table(TABLES["kernels"], columns, many),
        "kernel_links": build_table(DERIVED["kernel_links"], links, many),
        "activities": build_table(DERIVED["activities"], columns, many),
        "step_windows": _windows(start, end),
        "annotations": TABLES["annotations"].empty_table(),
    }


def _spread(column: pa.Array, config: Config) -> pa.Array:
    """A value of each activity, for every step and rank."""
    every = np.tile(np.repeat(np.arange(len(column)), config.ranks), config.steps)
    return column.take(pa.array(every))


def _ranks(config: Config) -> pa.Table:
    columns = {
        "rank": build_numbers(np.arange(config.ranks), pa.int32()),
        "device_name": constant_text(config.device.device_name, config.ranks),
    }
    return build_table(TABLES["ranks"], columns, config.ranks)


def _windows(start: np.ndarray, end: np.ndarray) -> pa.Table:
    """GPU steps one behind the other."""
    ends = np.maximum.accumulate(end.max(axis=1), axis=0)
    starts = np.concatenate([start[:1].min(axis=1), ends[:-1]])
    step, rank = np.indices(ends.shape)
    columns = {
        "rank": build_numbers(rank.ravel(), pa.int32()),
        "cycle": build_numbers(np.zeros(ends.size), pa.int32()),
        "device": build_numbers(np.zeros(ends.size), pa.int32()),
        "step": build_numbers(step.ravel(), pa.int32()),
        "start_ns": build_numbers(starts.ravel(), pa.int64()),
        "end_ns": build_numbers(ends.ravel(), pa.int64()),
        "complete": build_booleans(np.ones(ends.size, bool)),
    }
    return build_table(DERIVED["step_windows"], columns, ends.size)
