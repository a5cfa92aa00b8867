"""What kinds of kernels the GPU runs."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, number, numbers, text
from htk.columns.groups import Groups
from htk.columns.types import Ints
from htk.core.analysis import analysis
from htk.core.chart import Bar
from htk.core.spread import ByRank
from htk.measures.breakdown import Pool, percent, pooled, who_columns
from htk.names.kinds import kind_of
from htk.schema import TEXT, table

RETURNS = table(
    rank=(pa.int32(), "Global rank; null when pooled over ranks."),
    cycle=(pa.int32(), "Recording of the rank that the step is of; null without a step."),
    step=(pa.int32(), "Step that launched the kernels; null when pooled over steps."),
    family=(
        TEXT,
        "gemm, attention, convolution, moe, norm, elementwise, communication, … other.",
    ),
    kind=(TEXT, "compute, comm or memory."),
    distinct_kernels=(pa.int64(), "Different names."),
    count=(pa.int64(), "Activities."),
    total_ns=(pa.int64(), "Sum of durations."),
    duration_ns_mean=(pa.float64(), "Mean duration."),
    kernel_time_pct=(pa.float64(), "Share of the summed time of all activities of the group."),
    tensor_core_ns=(pa.int64(), "Time of kernels that use tensor (matrix) cores, by their names."),
    no_tensor_core_ns=(pa.int64(), "Time of kernels that do not."),
    tensor_core_unknown_ns=(pa.int64(), "Time of kernels whose names do not tell."),
    tensor_core_pct=(pa.float64(), "Of the time where the name tells; matrix families only."),
)
_MATRIX = ("gemm", "attention", "convolution", "moe")


@analysis(
    returns=RETURNS,
    chart=Bar("family", "total_ns", "family", horizontal=True),
    needs=("kernels",),
    spread=ByRank(when={"per": ("rank", "step")}),
)
def kernel_families(
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    per: Annotated[
        Pool, "What a row covers: all ranks, a rank, or the launches of a step."
    ] = "all",
) -> pa.Table:
    """What kinds of kernels does the GPU run, and do they use its tensor cores?

    Family and tensor-core use are told from a kernel's name. Times are sums, not unions.
    """
    family, families = codes_of(kernels["family"])
    kind, kinds = codes_of(kernels["kind"])
    name, _ = codes_of(kernels["name"])
    length = numbers(kernels["end_ns"]) - numbers(kernels["start_ns"])
    uses = _tensor_core(kernels)
    who = pooled(per, kernels, kernel_links["step"])
    groups = Groups.by_keys(np.column_stack([who, family, kind]))
    total = groups.sum(length)
    pools = Groups.by_keys(groups.keys[:, :3])
    share = pools.sum(total)[pools.group_ids]
    on, off = groups.sum(np.where(uses == 1, length, 0)), groups.sum(np.where(uses == 0, length, 0))
    matrix = np.isin(groups.keys[:, 3], [families.to_pylist().index(f) for f in _present(families)])
    classified = np.where(matrix, on + off, 0)
    order = np.lexsort((-total, *groups.keys[:, 2::-1].T))
    table = pa.table(
        [
            *who_columns(groups.keys),
            text(groups.keys[:, 3], families),
            text(groups.keys[:, 4], kinds),
            number(groups.distinct(name.astype(np.int64)), pa.int64()),
            number(groups.count, pa.int64()),
            number(total, pa.int64()),
            number(total / np.maximum(groups.count, 1), pa.float64()),
            percent(total, share),
            number(on, pa.int64()),
            number(off, pa.int64()),
            number(total - on - off, pa.int64()),
            percent(on, classified),
        ],
        schema=RETURNS,
    )
    return table.take(pa.array(order))


def _present(families: pa.Array) -> list[str]:
    return [f for f in families.to_pylist() if f in _MATRIX]


def _tensor_core(kernels: pa.Table) -> Ints:
    """1: uses tensor cores, 0: does not, -1: the name does not tell."""
    name, names = codes_of(kernels["name"])
    activity, activities = codes_of(kernels["activity"])
    pairs = Groups.by_keys(np.column_stack([name, activity]))
    labels, acts = names.to_pylist(), activities.to_pylist()
    tensor_core = []
    for a, b in pairs.keys.tolist():  # a distinct name each
        uses = kind_of(labels[a], acts[b]).tensor_core if a >= 0 and b >= 0 else None
        tensor_core.append(-1 if uses is None else int(uses))
    return np.array(tensor_core, np.int64)[pairs.group_ids]
