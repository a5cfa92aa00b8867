"""Answers as a table."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from htk.analyses.whatif.answer import Answer
from htk.arrow import texts
from htk.schema import TEXT
from htk.whatif_label import RETURNS


def rows(answers: Sequence[Answer], price: float | None = None) -> pa.Table:
    """`price`: of a GPU-hour."""
    made = [_row(a, price) for a in answers]
    columns = [
        texts([m[f.name] for m in made])
        if f.type == TEXT
        else pa.array([m[f.name] for m in made], f.type)
        for f in RETURNS
    ]
    return pa.table(columns, schema=RETURNS)


def _row(a: Answer, price: float | None) -> dict[str, Any]:
    lo50, hi50, lo90, hi90 = a.bands
    ratio = None if a.step_ns is None else a.step_ns / a.measured_ns
    each = a.each
    return {
        "whatif": ", ".join(f"{name} {value}" for name, value in a.edits) or "nothing",
        "step_time_ns": a.step_ns,
        "step_time_ns_lo50": lo50,
        "step_time_ns_hi50": hi50,
        "step_time_ns_lo90": lo90,
        "step_time_ns_hi90": hi90,
        "measured_step_time_ns": a.measured_ns,
        "change_pct": None if ratio is None else 100 * (ratio - 1),
        "time_per_sample_change_pct": None if ratio is None else 100 * (ratio / each - 1),
        "tokens_per_s": a.tokens_per_s,
        "tokens_per_s_per_gpu": None if a.tokens_per_s is None else a.tokens_per_s / a.gpus,
        "mfu_pct": a.mfu_pct,
        "exposed_comm_ns": a.exposed_ns,
        "idle_ns": a.idle_ns,
        "peak_memory_bytes": a.peak_memory,
        "p_oom": a.p_oom,
        "cost_per_million_tokens": _cost(a, price),
        "naive_no_change_ns": None if ratio is None else a.measured_ns,
        "naive_linear_ns": None if ratio is None else round(a.measured_ns * each),
        "gain_over_doubt": a.gain_over_doubt,
        "regret_pct": None if hi90 is None else max(100 * (hi90 / a.measured_ns / each - 1), 0.0),
        "mark": a.mark or None,
        "verdict": a.verdict,
        "waterfall": json.dumps(dict(a.waterfall)),
        "doubt": json.dumps({k: round(100 * v, 2) for k, v in a.sources.items()}),
        "narrow": a.narrow or None,
        "assumptions": "; ".join(a.assumptions),
    }


def _cost(a: Answer, price: float | None) -> float | None:
    """GPUs for an hour, over the millions of tokens of that hour."""
    if price is None or not a.tokens_per_s or math.isinf(a.tokens_per_s):
        return None
    return a.gpus * price / (3.6e-3 * a.tokens_per_s)
