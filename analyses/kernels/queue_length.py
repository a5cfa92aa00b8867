"""How much launched work waits on each stream."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    number_or_null,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.types import NONE, Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import FLOAT64, INT32, INT64, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.queues import QueueLengths, Waiting

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream; null for all streams of the device together."),
    launched=(INT64, "Launches in the recording; a graph is one."),
    length_mean=(FLOAT64, "Mean queue over time, from the first launch to the last start."),
    event_length_mean=(FLOAT64, "Mean queue over the launches and starts."),
    event_length_p50=(FLOAT64, "Median over the launches and starts."),
    length_max=(INT64, "Longest queue."),
    empty_pct=(FLOAT64, "Of that time nothing was queued."),
    blocked_ns=(INT64, "Time that launches were held up by a full queue; of the device only."),
    blocked_calls=(INT64, "Launches that were held up so; of the device only."),
)
_OUTLIER = 10  # times the median call
_FULL = 0.9  # of the longest queue seen on the device
_LEAST = 64  # launches; a shorter queue is never full, its slow calls have other causes


@analysis(
    returns=RETURNS,
    chart=Bar("stream", "length_max", "rank", stacked=False),
    needs=("kernels", "launches"),
    spread=BY_RANK,
)
def queue_length(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    *,
    by: Annotated[
        Literal["stream", "device"], "What a row stands for: a device, and each stream of it."
    ] = "stream",
) -> pa.Table:
    """How much launched work waits, and is the CPU held up by a full queue?

    The queue holds what is launched and not started, a graph as one until its first start. A
    launch is held up when the queue is at least 0.9 times as long as it ever gets on the device,
    64 at least, and the call takes more than 10 times the median of its kind; what is over that
    counts. (A shorter queue is never full, its slow calls have other causes: CUDA's holds 1022.)
    """
    tables = [
        _build_queue_rows(
            Waiting.from_kernels(kernels, kernel_links, per_stream=False), kernel_links, launches
        )
    ]
    if by == "stream":
        tables.append(
            _build_queue_rows(
                Waiting.from_kernels(kernels, kernel_links, per_stream=True), None, None
            )
        )
    order = [("rank", "ascending"), ("device", "ascending"), ("stream", "ascending")]
    limits = {"full_share_of_longest": _FULL, "full_from": _LEAST, "call_over_median": _OUTLIER}
    return with_coverage(pa.concat_tables(tables).sort_by(order), **limits)


def _build_queue_rows(
    waiting: Waiting, kernel_links: pa.Table | None, launches: pa.Table | None
) -> pa.Table:
    groups = Groups.by_keys(waiting.key)
    queues = QueueLengths.from_waiting(waiting, groups)
    queue, time, length, order = queues.queue, queues.time, queues.length, queues.order
    events = Groups.by_keys(queue)
    held = np.append(time[1:], 0)[: len(time)] - time
    held[np.append(queue[1:] != queue[:-1], True)[: len(queue)]] = 0
    span = events.sum(held)
    mean = divide_or_nan(events.sum(length * held), span)
    (p50,) = events.quantiles(length, (0.5,))
    longest = events.max(length)
    blocked = _build_blocked_columns(
        waiting, groups, order, length, longest, kernel_links, launches
    )
    k = groups.keys
    return pa.table(
        [
            number_or_null(k[:, 0], INT32),
            number_or_null(k[:, 2], INT32),
            number_or_null(k[:, 3], INT64),
            build_numbers(groups.count, INT64),
            build_numbers(mean, FLOAT64, span > 0),
            build_numbers(events.sum(length) / np.maximum(events.count, 1), FLOAT64),
            build_numbers(p50, FLOAT64),
            build_numbers(longest, INT64),
            build_percent(events.sum(np.where(length == 0, held, 0)), span),
            *blocked,
        ],
        schema=RETURNS,
    )


def _build_blocked_columns(
    waiting: Waiting,
    groups: Groups,
    order: Ints,
    length: Ints,
    longest: Ints,
    kernel_links: pa.Table | None,
    launches: pa.Table | None,
) -> list[pa.Array]:
    """Return how long launches were held up on each device; nothing known of single streams."""
    if kernel_links is None or launches is None:
        return [pa.nulls(len(groups), INT64)] * 2
    depth = np.empty(len(order), np.int64)
    depth[order] = length
    at_launch = depth[: len(waiting.row)]
    call_row = read_numbers(kernel_links["launch_row"], NONE)[waiting.row]
    name = codes_of(launches["name"])[0][call_row].astype(np.int64)
    call = read_lengths(launches)[call_row]
    group = groups.group_ids
    kinds = Groups.by_keys([group, name])
    (median,) = kinds.quantiles(call, (0.5,))
    over = np.maximum(call - _OUTLIER * median[kinds.group_ids], 0)
    over[(at_launch < _FULL * longest[group]) | (at_launch < _LEAST)] = 0
    held = np.bincount(group, np.round(over), minlength=len(groups))
    calls = np.bincount(group, over > 0, minlength=len(groups))
    return [
        build_numbers(held.astype(np.int64), INT64),
        build_numbers(calls.astype(np.int64), INT64),
    ]
