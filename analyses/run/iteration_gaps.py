"""Why a server's GPUs do not compute: between iterations, and within them."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_numbers
from htk.base.columns.intervals import Spans, intersect_spans, merge_spans, subtract_spans
from htk.base.columns.types import Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.quantities.derived.explained_idle import device_pieces
from htk.quantities.measures.server_iterations import LaunchedWork, ServerIterations

RETURNS = table(
    part=(TEXT, "between iterations, or within them: from the first to the last of their work."),
    cause=(
        TEXT,
        "scheduler, sampling or detokenising, as the host's calls say; transfers: only copies run; "
        "else the cause that idle-breakdown tells.",
    ),
    gaps=(INT64, "How often."),
    total_ns=(INT64, "Time of all ranks."),
    per_iteration_ns=(INT64, "Time for each iteration of a rank."),
    elapsed_pct=(FLOAT64, "Share of the time from the first iteration's start to the end."),
)

_BETWEEN = "between iterations"
_WITHIN = "within iterations"
_MODEL = "model"  # keeps the cause that the host's state tells
# What a server's host does, by names of functions of vLLM, SGLang and TensorRT-LLM; the first that
# fits names the time, since a scheduler's loop lies round everything.
_WORK = {
    "detokenising": re.compile(
        r"detokeni|(?<!scheduler_)output_processor|stream_output", re.IGNORECASE
    ),
    "sampling": re.compile(r"sampl(e|er|ing)(\b|_)|logits_process", re.IGNORECASE),
    "preparation": re.compile(
        r"_prepare_inputs|_update_states|get_model_worker_batch|prepare_for_"
    ),
    _MODEL: re.compile(r"model_runner|graph_runner|cuda_graph|nn\.Module|: forward|_forward_step"),
    "scheduler": re.compile(
        r"schedul|get_next_batch|process_batch_result|update_from_output|KVCacheManager|_prepare_and",
        re.IGNORECASE,
    ),
}
_NAMED = {"preparation": "scheduler"}
_UNRECORDED = "unrecorded_gpu_work_suspected"
_NOTHING = merge_spans(np.empty(0, np.int64), np.empty(0, np.int64))


@analysis(
    returns=RETURNS, chart=Bar("cause", ("per_iteration_ns",)), needs=("annotations", "kernels")
)
def iteration_gaps(
    annotations: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    idle_causes: pa.Table,
    python_calls: pa.Table,
    cpu_ops: pa.Table,
    *,
    match: Annotated[
        str | None, "Regular expression that names must match: ranges that are iterations."
    ] = None,
) -> pa.Table:
    """What do a server's GPUs wait for, between iterations and within them?

    The host's functions are told from a recording with stacks, ranges and operators: those of
    threads that launch work. Waits for work that was not recorded are left out.
    """
    iterations = ServerIterations.from_annotations(annotations, match)
    work = LaunchedWork(iterations.launching(kernels, kernel_links), len(iterations.rank), kernels)
    pieces = device_pieces(idle_causes)
    spans: defaultdict[tuple[str, str], list[Spans]] = defaultdict(list)
    elapsed = 0
    for rank in np.unique(iterations.rank).tolist():
        own = (iterations.rank == rank) & (work.count > 0)
        inside = merge_spans(work.first[own], work.last[own])
        if not own.any():
            continue
        extent = merge_spans(inside.start[:1], inside.end[-1:])
        waits = dict(_list_waits(_rows_of(pieces, rank)))
        elapsed += extent.total - intersect_spans(extent, waits.pop(_UNRECORDED, _NOTHING)).total
        calls = [_rows_of(table, rank) for table in (python_calls, annotations, cpu_ops)]
        host = _host_work(calls, _rows_of(launches, rank))
        waits["transfers"] = _lone_copies(_rows_of(kernels, rank))
        for cause, waited in _by_work(waits, host):
            spans[_BETWEEN, cause].append(subtract_spans(intersect_spans(waited, extent), inside))
            spans[_WITHIN, cause].append(intersect_spans(waited, inside))
    count = max(int((work.count > 0).sum()), 1)
    rows = [_build_gap_row(key, listed, count, max(elapsed, 1)) for key, listed in spans.items()]
    rows = sorted((row for row in rows if row["total_ns"]), key=_build_sort_key)
    return with_coverage(pa.Table.from_pylist(rows, schema=RETURNS), format=iterations.form)


def _build_sort_key(row: dict[str, str | int | float]) -> tuple[str, float]:
    return str(row["part"]), -float(row["total_ns"])


def _build_gap_row(
    key: tuple[str, str], spans: list[Spans], count: int, elapsed: int
) -> dict[str, str | int | float]:
    total = sum(each.total for each in spans)
    return {
        "part": key[0],
        "cause": key[1],
        "gaps": sum(len(each.start) for each in spans),
        "total_ns": total,
        "per_iteration_ns": round(total / count),
        "elapsed_pct": 100.0 * total / elapsed,
    }


def _rows_of(rows: pa.Table, rank: int) -> pa.Table:
    return rows.filter(pa.array(read_numbers(rows["rank"], -1) == rank))


def _merge_rows(rows: pa.Table, chosen: Mask) -> Spans:
    return merge_spans(
        *(read_numbers(rows[name])[chosen].astype(np.int64) for name in ("start_ns", "end_ns"))
    )


def _list_waits(pieces: pa.Table) -> Iterator[tuple[str, Spans]]:
    """Yield when a rank's GPU is idle, by cause."""
    for cause in pieces["cause"].unique().to_pylist():
        yield cause, _merge_rows(pieces, match_texts(pieces["cause"], cause.__eq__))


def _lone_copies(kernels: pa.Table) -> Spans:
    copies = match_texts(kernels["kind"], "memory".__eq__)
    return subtract_spans(_merge_rows(kernels, copies), _merge_rows(kernels, ~copies))


def _host_work(calls: list[pa.Table], launches: pa.Table) -> dict[str, Spans]:
    """Return when the threads that launch do which work; each time has but one."""
    threads = {*launches["thread"].to_pylist()}
    launching = [
        rows.filter(pa.array(match_texts(rows["thread"], threads.__contains__))) for rows in calls
    ]
    work: dict[str, Spans] = {}
    earlier = _NOTHING
    for name, pattern in _WORK.items():
        spans = [_find_calls(rows, pattern) for rows in launching]
        doing = merge_spans(*map(np.concatenate, zip(*spans, strict=True)))
        work[name] = subtract_spans(doing, earlier)
        earlier = merge_spans(*map(np.concatenate, zip(earlier, doing, strict=True)))
    return work


def _find_calls(rows: pa.Table, pattern: re.Pattern[str]) -> Spans:
    return _merge_rows(rows, match_texts(rows["name"], lambda name: bool(pattern.search(name))))


def _by_work(waits: dict[str, Spans], host: dict[str, Spans]) -> Iterator[tuple[str, Spans]]:
    """Yield waits by what the host does, where it is the host that is waited for."""
    for cause, waited in waits.items():
        left = waited
        if cause == "unknown" or cause.startswith("host_"):
            for name, doing in host.items():
                if name != _MODEL:
                    yield _NAMED.get(name, name), intersect_spans(waited, doing)
                    left = subtract_spans(left, doing)
        yield cause, left
