"""Activities of a rank, with what is known of each beside it, and their totals."""

from typing import Any

import numpy as np
import pyarrow as pa

from htk.quantities.derived.totals import kernel_totals
from tests.tables import make


def rows_of_rank(rank: int, seed: int) -> list[dict[str, Any]]:
    """Activities of two devices in four steps, with copies, nulls, and equal durations."""
    dice, rows = np.random.default_rng(seed), []
    for k in range(120):
        copy = bool(dice.random() < 0.2)
        start = 1000 * k + 5 * rank
        row: dict[str, Any] = {"rank": rank, "cycle": 0, "device": int(dice.integers(0, 2))}
        row |= {"start_ns": start, "end_ns": start + int(dice.integers(3, 7)) * 100 * (rank + 1)}
        row |= {"step": [None, 3, 4, 5][int(dice.integers(0, 4))]}
        row |= {"recomputed": bool(dice.random() < 0.3)}
        if copy:
            row |= {"name": "Memcpy", "kind": "memory", "activity": "copy", "family": "copy"}
            row |= {"size_bytes": int(dice.integers(1, 3)) << 12}
        else:
            row |= {"name": f"k{dice.integers(0, 3)}", "kind": "compute", "activity": "kernel"}
            row |= {"family": "gemm", "grid": f"[{dice.integers(1, 3)}]", "block": "[64]"}
            row |= {"blocks_per_sm": [None, 0.5][int(dice.integers(0, 2))]}
        rows.append(row)
    return rows


def totals_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Return the totals of activities, whose step and pass stand in their rows."""
    beside = ("step", "recomputed")
    kernels = make("kernels", [{k: v for k, v in r.items() if k not in beside} for r in rows])
    links = make("kernel_links", [{"step": r["step"]} for r in rows])
    return kernel_totals(
        kernels, links, make("kernel_passes", [{"recomputed": r["recomputed"]} for r in rows])
    )
