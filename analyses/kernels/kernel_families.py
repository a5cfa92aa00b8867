"""What kinds of kernels the GPU runs."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    rank_alphabetically,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import ByKey, ByRank
from htk.base.names.kinds import kind_of
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import Pool, build_percent, pool_rows, who_columns

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched the kernels; null when pooled over steps."),
    family=(
        TEXT,
        "gemm, attention, convolution, moe, norm, elementwise, communication, … other.",
    ),
    kind=(TEXT, "compute, comm, memory; other: a whole CUDA graph."),
    distinct_kernels=(INT64, "Different names."),
    count=(INT64, "Activities."),
    total_ns=(INT64, "Sum of durations."),
    duration_ns_mean=(FLOAT64, "Mean duration."),
    kernel_time_pct=(FLOAT64, "Share of the summed time of all activities of the group."),
    tensor_core_ns=(INT64, "Time of kernels that use tensor (matrix) cores, by their names."),
    no_tensor_core_ns=(INT64, "Time of kernels that do not."),
    tensor_core_unknown_ns=(
        INT64,
        "Time of kernels whose names do not tell; copies and sets are none.",
    ),
    tensor_core_pct=(FLOAT64, "Of the time where the name tells; matrix families only."),
)
_MATRIX = ("gemm", "attention", "convolution", "moe")


def _by_name(kernels: pa.Table, kernel_links: pa.Table, *, per: Pool) -> pa.Table:
    """Return count and time of each name of each group: of any ranks, to be added up."""
    columns = {c: codes_of(kernels[c]) for c in ("family", "kind", "name")}
    length = read_lengths(kernels)
    who = pool_rows(per, kernels, kernel_links["step"])
    tensor_core = _tensor_core(kernels)
    codes = [codes for codes, _ in columns.values()]
    groups = Groups.by_keys([who, *codes, tensor_core])
    whose = dict(zip(("rank", "cycle", "step"), groups.keys[:, :3].T, strict=True))
    names = {
        column: decode_texts(groups.keys[:, 3 + k], dictionary)
        for k, (column, (_, dictionary)) in enumerate(columns.items())
    }
    return pa.table(
        whose
        | names
        | {
            "tensor_core": groups.keys[:, 6],
            "count": groups.count,
            "total_ns": groups.sum(length),
        }
    )


def _sum_families(by_name: pa.Table, *, per: Pool) -> pa.Table:
    """Return the answer from the names of all ranks."""
    family, families = codes_of(by_name["family"])
    kind, kinds = codes_of(by_name["kind"])
    name, _ = codes_of(by_name["name"])
    uses = read_numbers(by_name["tensor_core"])
    count = read_numbers(by_name["count"])
    length = read_numbers(by_name["total_ns"])
    who = np.column_stack([read_numbers(by_name[c]) for c in ("rank", "cycle", "step")])
    groups = Groups.by_keys([who, family, kind])
    total = groups.sum(length)
    activities = groups.sum(count)
    pools = Groups.by_keys(groups.keys[:, :3])
    share = pools.sum(total)[pools.group_ids]
    on = groups.sum(np.where(uses == 1, length, 0))
    off = groups.sum(np.where(uses == 0, length, 0))
    computes = np.array([kind != "memory" for kind in kinds.to_pylist()] + [True])[
        groups.keys[:, 4]
    ]
    matrix = np.isin(
        groups.keys[:, 3], [families.to_pylist().index(f) for f in _list_matrix_families(families)]
    )
    classified = np.where(matrix, on + off, 0)
    ties = [
        rank_alphabetically(groups.keys[:, 3 + k], texts)
        for k, texts in enumerate((families, kinds))
    ]
    order = np.lexsort((*ties[::-1], -total, *groups.keys[:, 2::-1].T))
    table = pa.table(
        [
            *who_columns(groups.keys),
            decode_texts(groups.keys[:, 3], families),
            decode_texts(groups.keys[:, 4], kinds),
            build_numbers(groups.distinct(name.astype(np.int64)), INT64),
            build_numbers(activities, INT64),
            build_numbers(total, INT64),
            build_numbers(total / np.maximum(activities, 1), FLOAT64),
            build_percent(total, share),
            build_numbers(on, INT64),
            build_numbers(off, INT64),
            build_numbers(np.where(computes, total - on - off, 0), INT64),
            build_percent(on, classified),
        ],
        schema=RETURNS,
    )
    return table.take(pa.array(order))


@analysis(
    returns=RETURNS,
    chart=Bar("family", "total_ns", horizontal=True),
    needs=("kernels",),
    spread=(
        ByRank(when={"per": ("rank", "step")}),
        ByKey(when={"per": ("all",)}, part=_by_name, finish=_sum_families),
    ),
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
    return _sum_families(_by_name(kernels, kernel_links, per=per), per=per)


def _list_matrix_families(families: pa.Array) -> list[str]:
    return [f for f in families.to_pylist() if f in _MATRIX]


def _tensor_core(kernels: pa.Table) -> Ints:
    """1: uses tensor cores, 0: does not, -1: the name does not tell."""
    name, names = codes_of(kernels["name"])
    activity, activities = codes_of(kernels["activity"])
    pairs = Groups.by_keys([name, activity])
    labels = names.to_pylist()
    acts = activities.to_pylist()
    tensor_core = []
    for a, b in pairs.keys.tolist():  # a distinct name each
        uses = kind_of(labels[a], acts[b]).tensor_core if a >= 0 and b >= 0 else None
        tensor_core.append(-1 if uses is None else int(uses))
    return np.array(tensor_core, np.int64)[pairs.group_ids]
