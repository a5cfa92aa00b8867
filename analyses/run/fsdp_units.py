"""Units of fully sharded data parallelism: gathered when, exposed for how long."""

import re
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    decode_texts,
    match_texts,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, event_keys, number_hosts, row_of
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Scatter
from htk.base.core.spread import ByRank
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.exposure import comm_shares, lanes_of
from htk.quantities.measures.breakdown import Pool, pool_rows, who_columns
from htk.quantities.measures.passes import is_backward, phase_codes

_UNIT = re.compile(r"FSDP::\w+ \((.+)\)")
_PASSES = ("forward", "backward")
_COPY_OUT = ("split_with_sizes_copy", "all_gather_copy_out")

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched it; null when pooled over steps."),
    type=(TEXT, "all_gather or reduce_scatter."),
    phase=(TEXT, "forward or backward: the pass that launched it; null: operators tell none."),
    order=(INT32, "Number of the unit within step, type and pass, as it is run."),
    unit=(TEXT, "Name of the module, where FSDP's own ranges tell it."),
    group_size=(INT32, "Ranks that share the unit."),
    count=(INT64, "Collectives."),
    shard_bytes=(INT64, "Bytes of a rank's shard."),
    unit_bytes=(INT64, "Bytes of the whole unit."),
    duration_ns_mean=(FLOAT64, "Mean duration."),
    exposed_ns_mean=(FLOAT64, "Mean time of it in which nothing was computed."),
    lead_ns_mean=(
        FLOAT64,
        "Mean time from the end of a gather to its copy-out.",
    ),
    copy_out_ns_mean=(FLOAT64, "Mean duration of that copy-out."),
    prefetch_depth_mean=(FLOAT64, "Mean number of later gathers begun before that copy-out."),
    tail_exposed_ns_mean=(FLOAT64, "Mean exposed time of a step's last reduce-scatter."),
)


@analysis(
    returns=RETURNS,
    chart=Scatter("order", "exposed_ns_mean", "type"),
    needs=("collectives",),
    spread=ByRank(totals=("gathers", "with_copy_out"), when={"per": ("rank", "step")}),
)
def fsdp_units(
    collectives: pa.Table,
    activities: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    cpu_ops: pa.Table,
    kernel_passes: pa.Table,
    annotations: pa.Table,
    *,
    per: Annotated[Pool, "What a row covers: all ranks, a rank, or each of its steps."] = "all",
) -> pa.Table:
    """How are FSDP's units gathered and reduced: how large, how early, how exposed?

    Units are told apart by their order within a step's forward or backward pass. Copy-outs are
    matched to gathers in their order, where there are as many.
    """
    source = collectives.filter(pa.array(_mark_sharding(collectives)))
    kernel = row_of(event_keys(kernels), event_keys(source))
    on_gpu = kernel != NONE
    source = source.filter(pa.array(on_gpu))
    kernel = kernel[on_gpu]
    if not source.num_rows:
        if len(on_gpu):
            raise MissingTable(
                f"{len(on_gpu):,} all-gathers and reduce-scatters were recorded on the host alone "
                "(comm-summary shows them); FSDP's units need GPU activities",
                "kernels",
            )
        raise MissingTable("no all-gathers and reduce-scatters of one group: no FSDP seen")
    start, end = read_times(source)
    step = kernel_links["step"].take(pa.array(kernel))
    in_step = pool_rows("step", source, step)
    group = _group_size(source)
    gather = match_texts(source["type"], "all_gather".__eq__)
    back = _find_passes(kernels, kernel_passes, cpu_ops)[kernel]
    keys = np.column_stack([in_step, group, gather, back]).astype(np.int64)
    order = Groups.by_keys(keys).rank_within(start)
    copies = _find_copies(kernels, kernel_links, cpu_ops)
    lead, copied, ahead = _copy_outs(number_hosts(source), gather, start, end, kernels, copies)
    exposed = comm_shares(activities, lanes_of(source), start, end)[:, 1]
    wanted = [pool_rows(per, source, step), ~gather, back, order, group]
    rows = Groups.by_keys(wanted)
    tail = _last_reduction(in_step, gather, end)
    small = read_numbers(source["in_bytes"])
    large = read_numbers(source["out_bytes"])
    first = rows.first_row
    answer = pa.table(
        [
            *who_columns(rows.keys),
            decode_texts(rows.keys[:, 3], pa.array(["all_gather", "reduce_scatter"])),
            decode_texts(rows.keys[:, 4], pa.array(_PASSES)),
            build_numbers(rows.keys[:, 5], INT32),
            build_texts(_name_units(annotations, kernel_links, kernel[first])),
            source["group_size"].take(pa.array(first)).combine_chunks(),
            build_numbers(rows.count, INT64),
            build_numbers(np.minimum(small, large)[first], INT64),
            build_numbers(np.maximum(small, large)[first], INT64),
            _build_mean(rows, end - start),
            _build_mean(rows, exposed),
            *(_build_mean(rows, value, lead != NONE) for value in (lead, copied, ahead)),
            _build_mean(rows, exposed, tail),
        ],
        schema=RETURNS,
    )
    within = "steps" if (in_step[:, 2] != NONE).any() else "the recording: no steps were recorded"
    return with_coverage(
        answer,
        gathers=int(gather.sum()),
        with_copy_out=int((lead != NONE).sum()),
        numbered_within=within,
    )


def _find_passes(kernels: pa.Table, kernel_passes: pa.Table, cpu_ops: pa.Table) -> Ints:
    """Return the place of each activity's pass in _PASSES; NONE: nothing tells it."""
    with_operators = np.unique(read_numbers(cpu_ops["rank"], NONE))
    has_pass = (phase_codes(kernel_passes) != NONE) & np.isin(kernels["rank"], with_operators)
    return np.where(has_pass, is_backward(kernel_passes).astype(np.int64), NONE)


def _mark_sharding(collectives: pa.Table) -> Mask:
    """Gathers and reduce-scatters that the profiler saw, of groups that have both."""
    kinds = [match_texts(collectives["type"], k.__eq__) for k in ("all_gather", "reduce_scatter")]
    ours = match_texts(collectives["source"], "kineto".__eq__)
    group = codes_of(collectives["group_ranks"])[0].astype(np.int64)
    both = [np.isin(group, np.unique(group[kind & ours])) for kind in kinds]
    return np.asarray((kinds[0] | kinds[1]) & ours & both[0] & both[1])


def _group_size(source: pa.Table) -> Ints:
    return read_keys(source["group_size"])


def _find_copies(kernels: pa.Table, kernel_links: pa.Table, cpu_ops: pa.Table) -> Ints:
    """Return the kernels that copy gathered parameters out."""
    named = match_texts(cpu_ops["name"], lambda name: any(c in name for c in _COPY_OUT))
    row = read_numbers(kernel_links["op_row"], NONE)
    return np.flatnonzero(take_or(named, row, False))


def _copy_outs(
    host: Ints, gather: Mask, start: Ints, end: Ints, kernels: pa.Table, copies: Ints
) -> tuple[Ints, Ints, Ints]:
    """Lead, length of the copy-out, gathers ahead; NONE where copy-outs cannot be matched."""
    lead = fill_none(len(host))
    copied = fill_none(len(host))
    ahead = fill_none(len(host))
    begun, ended = read_times(kernels, copies)
    owner = number_hosts(kernels)[copies]
    for recording in np.unique(host).tolist():  # cycles of ranks
        gathers = np.flatnonzero((host == recording) & gather)
        gathers = gathers[order_by(start[gathers])]
        theirs = np.flatnonzero(owner == recording)
        theirs = theirs[order_by(begun[theirs])]
        if len(gathers) != len(theirs):
            continue
        lead[gathers] = np.maximum(begun[theirs] - end[gathers], 0)
        copied[gathers] = (ended - begun)[theirs]
        seen = np.searchsorted(start[gathers], begun[theirs])
        ahead[gathers] = np.maximum(seen - np.arange(len(gathers)) - 1, 0)
    return lead, copied, ahead


def _last_reduction(in_step: Ints, gather: Mask, end: Ints) -> Mask:
    """Return the last reduce-scatter of each step."""
    is_last = np.zeros(len(in_step), bool)
    rows = np.flatnonzero(~gather & (in_step[:, 2] != NONE))
    if len(rows):
        steps = Groups.by_keys(in_step[rows])
        is_last[rows] = end[rows] == steps.max(end[rows])[steps.group_ids]
    return is_last


def _name_units(annotations: pa.Table, kernel_links: pa.Table, kernel: Ints) -> list[str | None]:
    """Names in the ranges round the launches; FSDP's hold NCCL's, so those round them count too."""
    start, end = read_times(annotations)
    ours = np.flatnonzero(match_texts(annotations["name"], lambda n: _UNIT.match(n) is not None))
    rank = read_numbers(annotations["rank"], NONE)
    inner = read_numbers(kernel_links["annotation_row"], NONE)[kernel]
    units: list[str | None] = []
    for row in inner.tolist():  # a row of the answer each
        if row == NONE:
            units.append(None)
            continue
        around = ours[
            (start[ours] <= start[row]) & (end[ours] >= end[row]) & (rank[ours] == rank[row])
        ]
        match = _UNIT.match(annotations["name"][int(around[-1])].as_py()) if len(around) else None
        units.append(match[1] if match else None)
    return units


def _build_mean(rows: Groups, values: Ints, has_value: Mask | None = None) -> pa.Array:
    some = np.ones(len(values), bool) if has_value is None else has_value
    count = rows.sum(some.astype(np.int64))
    total = rows.sum(np.where(some, values, 0))
    return build_numbers(total / np.maximum(count, 1), FLOAT64, count > 0)
