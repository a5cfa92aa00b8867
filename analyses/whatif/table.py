"""Answers as a table."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from htk.analyses.whatif.answer import Answer
from htk.arrow import texts
from htk.schema import TEXT
from htk.whatif_label import RETURNS


def rows(answers: Sequence[Answer]) -> pa.Table:
    made = [_row(a) for a in answers]
    columns = [
        texts([m[f.name] for m in made])
        if f.type == TEXT
        else pa.array([m[f.name] for m in made], f.type)
        for f in RETURNS
    ]
    return pa.table(columns, schema=RETURNS)


def _row(a: Answer) -> dict[str, Any]:
    lo50, hi50, lo90, hi90 = a.bands
    ratio = None if a.step_ns is None else a.step_ns / a.measured_ns
    each = a.samples_ratio / a.devices_ratio
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
        "mfu_pct": None,
        "exposed_comm_ns": a.exposed_ns,
        "idle_ns": a.idle_ns,
        "peak_memory_bytes": None,
        "p_oom": None,
        "naive_linear_ns": None if ratio is None else round(a.measured_ns * each),
        "verdict": a.verdict,
        "waterfall": json.dumps(dict(a.waterfall)),
        "doubt": json.dumps({k: round(100 * v, 2) for k, v in a.spread.items()}),
        "assumptions": "; ".join(a.assumptions),
    }
