"""How evenly experts are used."""

import json
from functools import lru_cache

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, codes_of, mark_valid, number_or_null, read_numbers
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_ratio
from htk.quantities.measures.collective_calls import CollectiveCalls, size_facts

RETURNS = table(
    layer=(INT32, "Number of the all-to-all among those of its group in a step, from 0."),
    rank=(INT32, "Global rank."),
    group=(TEXT, "Process group name."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    count=(INT64, "All-to-alls."),
    received_tokens=(INT64, "Rows that it received, summed; null where not recorded."),
    received_bytes=(INT64, "Bytes that it received, summed; null where not recorded."),
    share_pct=(FLOAT64, "Share of what all recorded ranks received; null for one rank alone."),
    over_mean=(FLOAT64, "What it received over the mean of the recorded ranks."),
    over_mean_max=(FLOAT64, "The same of the rank that received most: 1 is even."),
    wait_ns=(INT64, "What it waited for the others; null where not matched over ranks."),
    total_ns=(INT64, "Time in these all-to-alls; null where not recorded."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("layer", "over_mean", color="rank", stacked=False),
    needs=("collectives",),
)
def moe_balance(
    collectives: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
) -> pa.Table:
    """How evenly do tokens spread over the ranks that hold the experts, layer by layer?

    Experts are seen through their all-to-alls: what a rank receives is what its experts compute (of
    dispatches; combines send it back). Layers are told by their order within a step; dispatch and
    combine are all-to-alls of their own. Embeddings that are exchanged look the same.
    """
    calls = CollectiveCalls.of_one_source(collectives, aligned_matches, ranks)
    rows = np.flatnonzero(calls.rows.is_type("all_to_all"))
    if not len(rows):
        raise MissingTable("no all-to-alls: no experts on several ranks seen")
    rank = calls.rows.rank[rows].astype(np.int64)
    group = calls.rows.group
    steps = _find_steps(calls.table, rows, kernels, kernel_links)
    has_steps = bool((steps[:, 1] != NONE).any())
    keys = np.column_stack([rank, group[rows], steps]).astype(np.int64)
    layer = Groups.by_keys(keys).rank_within(calls.rows.start[rows], rows)
    common = _on_every_rank(np.column_stack([group[rows], layer, steps]).astype(np.int64), rank)
    rows = rows[common]
    rank = rank[common]
    layer = layer[common]
    groups = Groups.by_keys([group[rows], layer, rank])
    layers = Groups.by_keys(groups.keys[:, :2])
    size = groups.sum(read_numbers(calls.table["out_bytes"], 0)[rows])
    tokens = _count_tokens(calls.table, rows)
    all_told = groups.min((tokens != NONE).astype(np.int64)) > 0
    layer_size = layers.sum(size)[layers.group_ids]
    members = layers.count[layers.group_ids]
    most = layers.max(size)[layers.group_ids]
    has_size = groups.min(mark_valid(calls.table["out_bytes"])[rows].astype(np.int64))
    # shares need the sizes of several ranks
    shared = np.where((members > 1) & (layers.min(has_size)[layers.group_ids] > 0), layer_size, 0)
    matched = (calls.match[rows] != NONE) & calls.waits.has_wait[rows]
    wait = groups.sum(np.where(matched, calls.waits.wait[rows], 0))
    time = calls.duration[rows]
    timed = groups.min((time != NONE).astype(np.int64)) > 0
    first = pa.array(rows[groups.first_row])
    answer = pa.table(
        [
            build_numbers(groups.keys[:, 1], INT32),
            number_or_null(groups.keys[:, 2], INT32),
            calls.table["group"].take(first),
            calls.table["group_ranks"].take(first),
            build_numbers(groups.count, INT64),
            build_numbers(groups.sum(np.maximum(tokens, 0)), INT64, all_told),
            build_numbers(size, INT64, has_size > 0),
            build_ratio(100 * size, shared),
            build_ratio(size * members, shared),
            build_ratio(most * members, shared),
            build_numbers(wait, INT64, groups.min(matched.astype(np.int64)) > 0),
            build_numbers(groups.sum(time), INT64, timed),
        ],
        schema=RETURNS,
    )
    numbered_within = "steps" if has_steps else "the recording: no steps were recorded"
    return with_coverage(
        answer,
        all_to_alls=len(rows),
        ranks_recorded=len(np.unique(rank)),
        with_tokens=int((tokens != NONE).sum()),
        **size_facts(calls, rows, required=False),
        numbered_within=numbered_within,
        left_out=int((~common).sum()),  # some rank's recording does not hold them
    )


def _on_every_rank(call: Ints, rank: Ints) -> Mask:
    """Return the calls that all recorded ranks of their group and layer hold; all, where none is.

    A rank whose file was cut received no fewer tokens.
    """
    calls = Groups.by_keys(call)
    layers = Groups.by_keys(call[:, :2])
    members = layers.distinct(rank)[layers.group_ids]
    common = calls.distinct(rank)[calls.group_ids] == members
    return common if common.any() else np.ones(len(rank), bool)


def _find_steps(table_: pa.Table, rows: Ints, kernels: pa.Table, kernel_links: pa.Table) -> Ints:
    """Cycle, and step that launched each, by its kernel; NONE for what has none."""
    kernel = row_of(event_keys(kernels), event_keys(table_)[rows])
    step = take_or(read_numbers(kernel_links["step"], NONE), kernel)
    return np.column_stack([read_numbers(table_["cycle"], 0)[rows], step]).astype(np.int64)


def _count_tokens(table_: pa.Table, rows: Ints) -> Ints:
    """Return the rows of the tensors received, or NONE."""
    codes, shapes = codes_of(table_["out_shapes"])
    received = np.array([_count_rows(shape) for shape in shapes.to_pylist()] + [NONE], np.int64)
    return received[codes[rows]]


@lru_cache(maxsize=10_000)
def _count_rows(shapes: str) -> int:
    try:
        listed = json.loads(shapes)
    except ValueError:
        return NONE
    tensors = [s for s in listed if isinstance(s, list) and len(s) > 1] if listed else []
    return sum(int(s[0]) for s in tensors) if tensors else NONE
