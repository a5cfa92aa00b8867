"""Sizes of collectives against their speed."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Scatter
from htk.base.mappings import Fields
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.physics.latency_bandwidth import Segment, fit_segments, predicted_us
from htk.quantities.measures.collective_calls import CollectiveCalls, match_facts, size_facts
from htk.quantities.measures.transfers import Transfers, of_benchmarks, of_trace

RETURNS = table(
    type=(TEXT, "all_reduce, all_gather, …"),
    level=(TEXT, "Within a node or across nodes, where known."),
    group_size=(INT32, "Ranks."),
    basis=(TEXT, "matched transfers, or the fastest tenth of unmatched calls."),
    size_from_bytes=(INT64, "Smallest size of the bucket: a power of two."),
    transfers=(INT64, "Collectives (unmatched: distinct sizes) in it."),
    moved_bytes=(INT64, "Their bytes, as bandwidth counts them."),
    transfer_ns=(INT64, "Their time."),
    busbw_gbps_p50=(FLOAT64, "Median bus bandwidth."),
    model_busbw_gbps=(FLOAT64, "What the fitted model says of the bucket's mean size."),
    model=(TEXT, "What the model was fitted to."),
    peak_busbw_gbps=(FLOAT64, "The model's bandwidth of large transfers."),
    of_peak_pct_p50=(FLOAT64, "Median, of that."),
    half_bandwidth_bytes=(INT64, "Size at which the model reaches half of that."),
    below_half=(BOOL, "The bucket is smaller: larger buffers would move faster."),
)


@analysis(
    returns=RETURNS,
    chart=Scatter(
        "size_from_bytes", "busbw_gbps_p50", "type", "transfer_ns", log_x=True, log_y=True
    ),
    needs=("collectives",),
)
def bucket_study(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    bench_points: pa.Table,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Are the buffers large enough: how does bandwidth grow with the size of a collective?

    Buckets are powers of two. The model is t = α + W/β, of a benchmark of the same type and number
    of ranks where there is one, else of the trace's own transfers; half of β is reached at α·β.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    size_facts(calls)
    measured = {(t.type, t.ranks): t for t in of_benchmarks(bench_points) if not t.in_place}
    rows: list[Fields] = []
    for own in of_trace(calls):
        model = measured.get((own.type, own.ranks), own)
        pieces = 1 if model is own else 3
        curve = fit_segments(model.moved, model.time_us, pieces)
        if curve:
            rows += _build_bucket_rows(own, model, curve)
    answer = pa.Table.from_pylist(rows, schema=RETURNS)
    return with_coverage(answer, **match_facts(calls, align))


def _build_bucket_rows(own: Transfers, model: Transfers, curve: list[Segment]) -> list[Fields]:
    exponent = np.log2(np.maximum(own.size, 1)).astype(int)
    ratio = float(own.moved[0] / own.size[0])
    last = curve[-1]
    half = None if last.half_bytes is None else round(last.half_bytes / ratio)
    rows = []
    for k in np.unique(exponent).tolist():  # some thirty powers of two
        in_bucket = exponent == k
        speed = float(np.median(own.moved[in_bucket] / own.time_us[in_bucket] / 1e3))
        mean = float(own.moved[in_bucket].mean())
        expected = predicted_us(curve, mean)
        peak = last.bandwidth_gbps
        rows.append(
            {
                "type": own.type,
                "level": own.level,
                "group_size": own.ranks if own.ranks > 0 else None,
                "basis": own.basis,
                "size_from_bytes": 1 << k,
                "transfers": int(in_bucket.sum()),
                "moved_bytes": round(float(own.size[in_bucket].sum())),
                "transfer_ns": round(float(own.time_us[in_bucket].sum()) * 1e3),
                "busbw_gbps_p50": speed,
                "model_busbw_gbps": mean / expected / 1e3 if expected > 0 else None,
                "model": model.basis,
                "peak_busbw_gbps": peak,
                "of_peak_pct_p50": 100 * speed / peak if peak else None,
                "half_bandwidth_bytes": half,
                "below_half": None if half is None else (1 << k) < half,
            }
        )
    return rows
