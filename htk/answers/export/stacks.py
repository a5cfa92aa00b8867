"""Time by call stack, for flame graphs: folded stacks and speedscope's format.

A stack holds a rank's Python calls and operators as they enclose each other, outermost first. CPU
time is each call's own (less what it calls); GPU time is that of the kernels that the innermost
operator launched, which end the stack. Both are sums of durations in ns over all threads and
streams.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from htk.answers.export.rewrite import part_of
from htk.base.columns.arrow import codes_of, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Nested, Threads
from htk.base.columns.types import NONE, take_or
from htk.base.errors import MissingTable
from htk.quantities.measures.call_tree import (
    CallTree,
    DeviceTimes,
    Paths,
    functions_of,
    without_operator,
)
from htk.traces.trace.trace import Trace

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = ("cpu", "gpu")


@dataclass(frozen=True)
class Stack:
    """A stack of one rank and the time spent in it itself."""

    frames: tuple[str, ...]
    time_ns: int


@dataclass(frozen=True)
class RankStacks:
    """All stacks of a rank."""

    rank: int
    cpu: list[Stack]
    gpu: list[Stack]


def rank_stacks(trace: Trace) -> Iterator[RankStacks]:
    """The stacks of each rank; of those without any call or kernel, none."""
    for rank in trace.ranks:
        stacks = _of_rank(trace.sel(ranks=[rank]), rank)
        if stacks.cpu or stacks.gpu:
            yield stacks


def write_folded(trace: Trace, folder: Path) -> list[tuple[Path, int]]:
    """Write folder/cpu.folded and folder/gpu.folded; how many stacks each holds."""
    ranks = list(rank_stacks(trace))
    _check_stacks(ranks, trace)
    written = []
    for unit in _UNITS:
        lines = [
            f"{';'.join(map(_spell_frame, (root, *stack.frames)))} {stack.time_ns}\n"
            for root, stacks in [
                (f"rank {of_rank.rank}", getattr(of_rank, unit)) for of_rank in ranks
            ]
            for stack in stacks
        ]
        if lines:
            with part_of(folder / f"{unit}.folded") as out:
                out.write("".join(lines).encode())
            written.append((folder / f"{unit}.folded", len(lines)))
    return written


def write_speedscope(trace: Trace, folder: Path) -> list[tuple[Path, int]]:
    """Write folder/stacks.speedscope.json with a profile for each rank and kind of time."""
    ranks = list(rank_stacks(trace))
    _check_stacks(ranks, trace)
    frames: dict[str, int] = {}
    profiles = []
    for of_rank in ranks:
        for unit in _UNITS:
            stacks: list[Stack] = getattr(of_rank, unit)
            if not stacks:
                continue
            samples = [[frames.setdefault(f, len(frames)) for f in s.frames] for s in stacks]
            weights = [s.time_ns for s in stacks]
            profiles.append(
                {
                    "type": "sampled",
                    "name": f"rank {of_rank.rank}, {unit.upper()} time",
                    "unit": "nanoseconds",
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": samples,
                    "weights": weights,
                }
            )
    file = {
        "$schema": _SCHEMA,
        "exporter": "htk",
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    target = folder / "stacks.speedscope.json"
    with part_of(target) as out:
        out.write(json.dumps(file, ensure_ascii=False).encode())
    return [(target, sum(len(p["samples"]) for p in profiles))]  # type: ignore[arg-type, misc]


def _of_rank(trace: Trace, rank: int) -> RankStacks:
    tables = trace.tables
    python = tables["python_calls"]
    ops = tables["cpu_ops"]
    calls = pa.concat_tables(
        [t.select(["name", "process", "thread", "start_ns", "end_ns"]) for t in (python, ops)]
    ).unify_dictionaries()
    threads = Threads().number_threads(calls)
    start, end = read_times(calls)
    nested = Nested(threads, start, end)
    tree = CallTree(
        nested.parent, nested.depth.astype(np.int64), threads.astype(np.int64), start, end
    )
    name, names = functions_of(calls["name"])
    paths = Paths.from_tree(tree, name)
    texts = _list_frames(paths, names)
    return RankStacks(
        rank,
        _list_cpu_stacks(tree, paths, texts),
        _list_gpu_stacks(trace, paths, texts, len(python)),
    )


def _list_cpu_stacks(tree: CallTree, paths: Paths, texts: list[tuple[str, ...]]) -> list[Stack]:
    spent = np.zeros(len(texts), np.int64)
    np.add.at(spent, paths.of_row, tree.self_time)
    return [Stack(texts[k], int(spent[k])) for k in np.flatnonzero(spent > 0)]


def _list_gpu_stacks(
    trace: Trace, paths: Paths, texts: list[tuple[str, ...]], before: int
) -> list[Stack]:
    """Kernels below the path of the operator that launched them; `before`: rows of other calls."""
    tables = trace.tables
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    ops = tables["cpu_ops"].num_rows
    times = DeviceTimes.from_kernels(ops, kernels, links, tables["op_links"])
    above = [*texts]
    path_of_kernel = np.where(times.row == NONE, NONE, take_or(paths.of_row, times.row + before))
    for why, rows in without_operator(links, times, np.ones(ops, bool)):
        path_of_kernel[rows] = len(above)
        above.append((why,))
    codes, names = codes_of(kernels["name"])
    groups = Groups.by_keys(np.stack([path_of_kernel, codes.astype(np.int64)], axis=1))
    spent = groups.sum(times.length)
    kernel_names = [*names.to_pylist(), "unnamed"]
    return [
        Stack((*above[path], kernel_names[code]), time)
        for (path, code), time in zip(groups.keys.tolist(), spent.tolist(), strict=True)
        if time > 0
    ]


def _list_frames(paths: Paths, names: list[str]) -> list[tuple[str, ...]]:
    """Return the frames of each path; callers come first."""
    texts: list[tuple[str, ...]] = []
    for above, name in zip(paths.above.tolist(), paths.name.tolist(), strict=True):
        texts.append((*(texts[above] if above != NONE else ()), names[name]))
    return texts


def _check_stacks(ranks: list[RankStacks], trace: Trace) -> None:
    if not ranks:
        trace.need("cpu_ops")
        raise MissingTable("no call or kernel takes any time")


def _spell_frame(name: str) -> str:
    """Return a name as one frame: a semicolon would end it."""
    return " ".join(name.replace(";", ",").split()) or "unnamed"
