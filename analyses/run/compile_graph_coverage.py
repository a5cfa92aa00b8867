"""How much of the GPU time runs compiled, or in CUDA graphs."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    number_or_null,
    read_keys,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import CallTree

_HOW = ("cuda graph", "compiled", "eager", "outside operators")
_COMPILED = re.compile(
    r"Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|CompiledFxGraph|triton_"
    r"|inductor|autograd::engine::evaluate_function: CompiledFunctionBackward"
)
_REGION = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_COMPILING = re.compile(
    r"(_compile\.)?compile_(inner|fx|frame)|dynamo_timed|TritonBundler|async_compile"
)

RETURNS = table(
    rank=(INT32, "Global rank."),
    how=(TEXT, "cuda graph, compiled, eager; outside operators: launched there, or not linked."),
    device_ns=(INT64, "Sum of GPU activities."),
    device_time_pct=(FLOAT64, "Share of the rank's GPU time."),
    kernels=(INT64, "GPU activities."),
    launches=(INT64, "Calls that launched them."),
    regions=(INT64, "Compiled regions entered on the rank; null where none is recorded."),
    python_frames=(
        INT64,
        "Python frames compiled: more than one per model is a graph break.",
    ),
    recompiles=(INT64, "Compilations of a frame beyond its first, as regions are numbered."),
    compile_ns=(INT64, "CPU time of compilation within the recording."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", "device_ns", color="how"),
    needs=("kernels",),
    null_without={
        "launches": ("launches",),
        "cpu_ops": ("python_frames", "recompiles", "compile_ns"),
    },
    spread=BY_RANK,
)
def compile_graph_coverage(
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
) -> pa.Table:
    """How much of the GPU time runs in CUDA graphs, compiled or eagerly?

    Compiled is what is launched inside a compiled region or graph of torch.compile, or by a kernel
    that Inductor wrote. Regions are numbered frame/compilation: each graph break adds a frame, each
    recompilation the next number.
    """
    how = _find_launch_modes(kernels, kernel_links, cpu_ops, op_links, annotations)
    rank = read_keys(kernels["rank"])
    groups = Groups.by_keys([rank, how])
    length = read_lengths(kernels)
    time = groups.sum(length)
    ranks = groups.keys[:, 0]
    of_rank = Groups.by_keys(ranks)
    rank_time = of_rank.sum(time)[of_rank.group_ids]
    launch = read_numbers(kernel_links["launch_row"], NONE)
    linked = launch != NONE
    calls = Groups.by_keys([groups.group_ids[linked], launch[linked]]).keys[:, 0]
    regions = _read_regions(cpu_ops, annotations)
    facts = [regions.get(r, _Regions()).facts for r in ranks.tolist()]  # a row of the answer each
    return pa.table(
        [
            number_or_null(ranks, INT32),
            decode_texts(groups.keys[:, 1], pa.array(_HOW), compact=False),
            build_numbers(time, INT64),
            build_percent(time, rank_time),
            build_numbers(groups.count, INT64),
            build_numbers(np.bincount(calls, minlength=len(groups)), INT64),
            *(pa.array([f[k] for f in facts], INT64) for k in range(4)),
        ],
        schema=RETURNS,
    )


def _find_launch_modes(
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
) -> Ints:
    graph = match_texts(kernel_links["launch_by"], lambda by: by == "graph")
    graph |= mark_valid(kernels["graph_id"]) & (read_numbers(kernels["graph_id"]) != 0)
    row = read_numbers(kernel_links["op_row"], NONE)
    range_ = read_numbers(kernel_links["annotation_row"], NONE)
    ranges = match_texts(annotations["name"], _is_compiled)
    compiled = take_or(_mark_inside_regions(cpu_ops, op_links), row, False)
    compiled |= take_or(ranges, range_, False)
    compiled |= match_texts(kernels["name"], lambda name: name.startswith("triton_"))
    return np.where(graph, 0, np.where(compiled, 1, np.where(row != NONE, 2, 3)))


def _mark_inside_regions(cpu_ops: pa.Table, op_links: pa.Table) -> Mask:
    """Return the operators that a compiled region calls, at any depth."""
    tree = CallTree.from_calls(cpu_ops, op_links)
    compiled = match_texts(cpu_ops["name"], _is_compiled)
    for rows in tree.levels[1:]:
        compiled[rows] |= compiled[tree.parent[rows]]
    return compiled


def _is_compiled(name: str) -> bool:
    return _COMPILED.match(name) is not None


@dataclass
class _Regions:
    """Compiled regions that a rank entered, and its time in compilation."""

    entered: int = 0
    latest: dict[int, int] = field(default_factory=dict)  # version of each frame
    compile_ns: int = 0

    @property
    def facts(self) -> tuple[int | None, int | None, int | None, int]:
        if not self.entered:
            return None, None, None, self.compile_ns
        return self.entered, len(self.latest), sum(self.latest.values()), self.compile_ns


def _read_regions(cpu_ops: pa.Table, annotations: pa.Table) -> dict[int, _Regions]:
    """Return what the names of operators and ranges tell of compilation on each rank."""
    regions: dict[int, _Regions] = defaultdict(_Regions)
    for table_ in (cpu_ops, annotations):
        codes, names = codes_of(table_["name"])
        labels = names.to_pylist()
        region = [_REGION.match(name) for name in labels]
        is_compiling = [
            r is not None or _COMPILING.match(n) for r, n in zip(region, labels, strict=True)
        ]
        rows = np.flatnonzero(np.array([*is_compiling, False], bool)[codes])
        length = read_lengths(table_)
        groups = Groups.by_keys(np.column_stack([read_numbers(table_["rank"], NONE), codes])[rows])
        sums = zip(groups.count.tolist(), groups.sum(length[rows]).tolist(), strict=True)
        for (rank, code), (count, spent) in zip(groups.keys.tolist(), sums, strict=True):
            # a distinct name of a rank
            own = regions[rank]
            match = region[code]
            if match is None:
                own.compile_ns += spent
                continue
            own.entered += count
            frame = int(match[1])
            version = int(match[2])
            own.latest[frame] = max(own.latest.get(frame, 0), version)
    return regions
