"""Latency and bandwidth of communication, fitted."""

from typing import Annotated, Literal

import pyarrow as pa

from htk.base.core.analysis import analysis, with_coverage
from htk.base.errors import MissingTable
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.physics.latency_bandwidth import fit_segments
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts, size_facts
from htk.quantities.measures.transfers import Transfers, of_benchmarks, of_trace

RETURNS = table(
    basis=(
        TEXT,
        "What it was fitted to: nccl_tests (or another benchmark), matched transfers of the "
        "trace, or the fastest tenth of unmatched calls.",
    ),
    type=(TEXT, "all_reduce, all_gather, …"),
    level=(TEXT, "Within a node or across nodes, where known."),
    group_size=(INT32, "Ranks."),
    in_place=(BOOL, "In place, for benchmarks."),
    segment=(INT32, "Piece of the curve, smallest sizes first."),
    from_bytes=(INT64, "Smallest size of the piece, as bandwidth counts it."),
    to_bytes=(INT64, "Largest size of the piece."),
    points=(INT32, "Transfers that it rests on."),
    latency_us=(FLOAT64, "α of t = α + W/β; null: one size alone does not tell it."),
    bandwidth_gbps=(
        FLOAT64,
        "β: bus bandwidth of large transfers; null where size does not matter.",
    ),
    half_bandwidth_bytes=(INT64, "Size at which half of it is reached."),
    residual_pct=(FLOAT64, "Root mean square error of the fitted time."),
    error_pct_max=(FLOAT64, "Largest error of the fitted time."),
)


@analysis(returns=RETURNS)
def comm_model(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    bench_points: pa.Table,
    *,
    basis: Annotated[
        Literal["all", "benchmark", "trace"], "Fit to benchmarks, to the trace, or to both."
    ] = "all",
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """How does the time of a collective grow with its size: what latency, what bandwidth?

    t = α + W/β by least squares on relative error, W = bytes × bus factor. Benchmarks are fitted
    in up to three pieces (protocols change with size), the trace's own transfers in one.
    """
    if not bench_points.num_rows and not collectives.num_rows:
        raise MissingTable("no collectives to fit", "collectives")
    if basis == "benchmark" and not bench_points.num_rows:
        raise MissingTable("no benchmarks to fit", "bench_points")
    rows = []
    sizes: dict[str, object] = {}
    if basis != "trace":
        for transfers in of_benchmarks(bench_points):
            rows += _build_model_rows(transfers, 3)
    if basis != "benchmark" and collectives.num_rows:
        matches = aligned_matches if align else collective_matches
        calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
        sizes = size_facts(calls, required=not rows)
        for transfers in of_trace(calls):
            rows += _build_model_rows(transfers, 1)
    answer = pa.Table.from_pylist(rows, schema=RETURNS)
    inferred = bench_points.num_rows - bench_points["inferred_columns"].null_count
    facts = {"points_of_inferred_type": inferred} if inferred else {}
    return with_coverage(answer, **sizes, **facts, **clock_facts(align))


def _build_model_rows(transfers: Transfers, pieces: int) -> list[dict[str, object]]:
    curve = fit_segments(transfers.moved, transfers.time_us, pieces)
    ratio = float(transfers.moved[0] / transfers.size[0]) if len(transfers.size) else 1.0
    return [
        {
            "basis": transfers.basis,
            "type": transfers.type,
            "level": transfers.level,
            "group_size": transfers.ranks if transfers.ranks > 0 else None,
            "in_place": transfers.in_place,
            "segment": k,
            "from_bytes": round(s.low_bytes / ratio),
            "to_bytes": round(s.high_bytes / ratio),
            "points": s.points,
            "latency_us": s.latency_us if s.tells_latency else None,
            "bandwidth_gbps": s.bandwidth_gbps,
            "half_bandwidth_bytes": None if s.half_bytes is None else round(s.half_bytes / ratio),
            "residual_pct": 100 * s.residual,
            "error_pct_max": 100 * s.worst,
        }
        for k, s in enumerate(curve)
    ]
