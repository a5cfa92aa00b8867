"""How much of the GPU time runs compiled, or in CUDA graphs."""

import re

import numpy as np
import pyarrow as pa

from htk.analysis import analysis
from htk.arrow import codes_of, matching, number, numbers, text, valid
from htk.breakdown import percent
from htk.calltree import NONE, CallTree, Mask
from htk.chart import Bar
from htk.groups import Groups, Ints
from htk.schema import TEXT, table

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
    rank=(pa.int32(), "Global rank."),
    how=(TEXT, "cuda graph, compiled, eager; outside operators: launched there, or not linked."),
    device_ns=(pa.int64(), "Sum of GPU activities."),
    pct=(pa.float64(), "Share of the rank's GPU time."),
    activities=(pa.int64(), "GPU activities."),
    launches=(pa.int64(), "Calls that launched them."),
    regions=(pa.int64(), "Compiled regions entered on the rank; null where none is recorded."),
    frames=(pa.int64(), "Python frames that they come from: more than one per model is a break."),
    recompiles=(pa.int64(), "Compilations of a frame beyond its first, as regions are numbered."),
    compile_ns=(pa.int64(), "CPU time of compilation within the recording."),
)


@analysis(returns=RETURNS, chart=Bar("how", "device_ns", color="rank"), needs=("kernels",))
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
    how = _how(kernels, kernel_links, cpu_ops, op_links, annotations)
    rank = numbers(kernels["rank"], NONE).astype(np.int64)
    groups = Groups.of(np.column_stack([rank, how]))
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    time = groups.sum(length)
    ranks = groups.keys[:, 0]
    whole = np.array([time[ranks == r].sum() for r in ranks.tolist()], np.int64)
    launch = numbers(kernel_links["launch_row"], NONE)
    calls = np.unique(np.column_stack([groups.which, launch])[launch != NONE], axis=0)[:, 0]
    facts = [_regions(int(r), cpu_ops, annotations) for r in ranks.tolist()]  # a row of the answer
    return pa.table(
        [
            number(ranks, pa.int32(), ranks >= 0),
            text(groups.keys[:, 1], pa.array(_HOW), compact=False),
            number(time, pa.int64()),
            percent(time, whole),
            number(groups.count, pa.int64()),
            number(np.bincount(calls, minlength=len(groups)), pa.int64()),
            *(pa.array([f[k] for f in facts], pa.int64()) for k in range(4)),
        ],
        schema=RETURNS,
    )


def _how(
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
) -> Ints:
    graph = matching(kernel_links["launch_by"], lambda by: by == "graph")
    graph |= valid(kernels["graph_id"]) & (numbers(kernels["graph_id"]) != 0)
    row = numbers(kernel_links["op_row"], NONE)
    range_ = numbers(kernel_links["annotation_row"], NONE)
    ranges = matching(annotations["name"], _is_compiled)
    compiled = np.append(_inside(cpu_ops, op_links), False)[row]
    compiled |= np.append(ranges, False)[range_]
    compiled |= matching(kernels["name"], lambda name: name.startswith("triton_"))
    return np.where(graph, 0, np.where(compiled, 1, np.where(row != NONE, 2, 3)))


def _inside(cpu_ops: pa.Table, op_links: pa.Table) -> Mask:
    """Operators that a compiled region calls, at any depth."""
    tree = CallTree.of(cpu_ops, op_links)
    found = matching(cpu_ops["name"], _is_compiled)
    for rows in tree.levels[1:]:
        found[rows] |= found[tree.parent[rows]]
    return found


def _is_compiled(name: str) -> bool:
    return _COMPILED.match(name) is not None


def _regions(
    rank: int, cpu_ops: pa.Table, annotations: pa.Table
) -> tuple[int | None, int | None, int | None, int]:
    """Regions entered, their frames, recompilations; time spent compiling."""
    entered, compiling = 0, 0
    latest: dict[int, int] = {}
    for rows in (cpu_ops, annotations):
        mine = numbers(rows["rank"], NONE) == rank
        codes, names = codes_of(rows["name"])
        counts = np.bincount(codes[mine & (codes >= 0)], minlength=len(names))
        length = numbers(rows["end_ns"]) - numbers(rows["start_ns"])
        for code, name in enumerate(names.to_pylist()):  # distinct names
            if counts[code] and (found := _REGION.match(name)):
                entered += int(counts[code])
                frame, version = int(found[1]), int(found[2])
                latest[frame] = max(latest.get(frame, 0), version)
            elif counts[code] and _COMPILING.match(name):
                compiling += int(length[mine & (codes == code)].sum())
    if not entered:
        return None, None, None, compiling
    return entered, len(latest), sum(latest.values()), compiling
