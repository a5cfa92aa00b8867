"""GPU activities as Holistic Trace Analysis (HTA) sees them, to compare its figures with ours.

After HTA 0.6.1 (hta/common/types.py, trace.py, analyzers/breakdown_analysis.py): synchronisations
on a stream count as activities; kinds come from its regular expressions; with two steps or more
only what was launched before the start of the last step is kept; all devices of a rank are one.
Its rounding to microseconds and its double rows where two calls share a correlation are not
reproduced: on traces in whole microseconds its figures are met exactly.
"""

import re

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_nulls,
    build_numbers,
    codes_of,
    map_texts,
    mark_valid,
    number_or_null,
    read_booleans,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.types import NO_TIME, NONE, Ints, take_or
from htk.base.errors import UsageError
from htk.base.schema import ACTIVITIES, INT32, INT64, WINDOWS

SHORT_GAP_NS = 30_000  # consecutive_kernel_delay: a queued kernel that begins sooner waited for it
_COMM = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
_MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
_NOT_COMPUTE = re.compile(
    r"(^nccl)|(.*Memcpy)|(.*Memset)|(.*dma)|(^.*Sync)|(^Stream Wait Event)|(cuda.*LaunchKernel)"
    r"|(^runFunction)|(^hip)|(^job_exe)|(^packet)|(^pe_exe)|(^cpum_exe_subgraph)|(^hccl)"
    r"|(^collective_subgraph_execution)"
)


def kind_of(name: str) -> str:
    """Return what HTA takes an activity of that name for."""
    if _COMM.match(name):
        return "comm"
    if _MEMORY.match(name):
        return "memory"
    return "other" if _NOT_COMPUTE.match(name) else "compute"


def class_gpu_time(
    per: str,
    kernels: pa.Table,
    kernel_links: pa.Table,
    syncs: pa.Table,
    launches: pa.Table,
    annotations: pa.Table,
) -> tuple[pa.Table, pa.Table]:
    """Return all that HTA counts as GPU time in its classes, and the window of each rank."""
    refuse_steps(per)
    counted = class_activities(kernels, kernel_links, syncs, launches, annotations)
    return counted, rank_windows(counted)


def refuse_steps(per: str) -> None:
    if per == "step":
        raise UsageError("--compat hta answers per rank: HTA has no GPU steps")


def kept_kernels(kernels: pa.Table, kernel_links: pa.Table, annotations: pa.Table) -> pa.Table:
    """Kernels, copies and sets that HTA keeps, with `launch_start_ns` (NO_TIME: unlinked)."""
    launch = read_numbers(kernel_links["launch_start_ns"], NO_TIME)
    rows = kernels.append_column("launch_start_ns", build_numbers(launch, INT64))
    on_stream = mark_valid(kernels["stream"])
    keep = _launched_in_time(read_numbers(kernels["rank"], NONE), launch, annotations)
    return rows.filter(pa.array(keep & on_stream))


def class_activities(
    kernels: pa.Table,
    kernel_links: pa.Table,
    syncs: pa.Table,
    launches: pa.Table,
    annotations: pa.Table,
) -> pa.Table:
    """Return all that HTA counts as GPU time, in its classes."""
    kept = [
        kept_kernels(kernels, kernel_links, annotations),
        _select_syncs(syncs, launches, annotations),
    ]
    tables = []
    for table in kept:
        columns = {f.name: table[f.name] for f in ACTIVITIES if f.name in table.column_names}
        columns["device"] = build_nulls(INT32, table.num_rows)
        columns["kind"] = map_texts(table["name"], kind_of)
        tables.append(pa.table(columns, schema=ACTIVITIES))
    return pa.concat_tables(tables)


def rank_windows(activities: pa.Table) -> pa.Table:
    """First start to last end of each rank, whatever its devices."""
    who = np.stack([read_keys(activities[c]) for c in ("rank", "cycle")], axis=1)
    ranks = Groups.by_keys(who)
    rank = ranks.keys[:, 0]
    cycle = ranks.keys[:, 1]
    arrays = {
        "rank": number_or_null(rank, INT32),
        "cycle": number_or_null(cycle, INT32),
        "start_ns": build_numbers(ranks.min(read_numbers(activities["start_ns"])), INT64),
        "end_ns": build_numbers(ranks.max(read_numbers(activities["end_ns"])), INT64),
        "complete": pa.array(np.ones(len(ranks), bool)),
    }
    columns = [arrays.get(f.name, build_nulls(f.type, len(ranks))) for f in WINDOWS]
    return pa.table(columns, schema=WINDOWS)


def _select_syncs(syncs: pa.Table, launches: pa.Table, annotations: pa.Table) -> pa.Table:
    """Synchronisations on a stream, with the same choice of steps."""
    rank = read_keys(syncs["rank"])
    start = _call_starts(rank, read_numbers(syncs["correlation"], NONE), launches)
    keep = _launched_in_time(rank, start, annotations) & mark_valid(syncs["stream"])
    return syncs.filter(pa.array(keep))


def _call_starts(rank: Ints, correlation: Ints, launches: pa.Table) -> Ints:
    """Return the start of the call with that correlation, or NO_TIME."""
    ids = read_numbers(launches["correlation"], NONE)
    whose = read_keys(launches["rank"])
    row = row_of(np.column_stack([whose, ids]), np.column_stack([rank, correlation]))
    row = np.where(correlation > 0, row, -1)
    return take_or(read_numbers(launches["start_ns"]), row, NO_TIME)


def _launched_in_time(rank: Ints, launch: Ints, annotations: pa.Table) -> np.ndarray:
    """Launched before the last step of the rank began; everything, without two steps."""
    keep = np.ones(len(rank), bool)
    steps = mark_valid(annotations["step"]) & (
        ~read_booleans(annotations["on_gpu"]) | ~mark_valid(annotations["stream"])
    )
    if len(np.unique(codes_of(annotations["name"])[0][steps])) < 2:
        return keep
    whose = read_numbers(annotations["rank"], NONE)[steps]
    start = read_numbers(annotations["start_ns"])[steps]
    for rank_id in np.unique(rank).tolist():  # a rank each
        of_rank = rank == rank_id
        last = start[whose == rank_id].max(initial=np.iinfo(np.int64).min)
        keep[of_rank] = (launch[of_rank] > NO_TIME) & (launch[of_rank] < last)
    return keep
