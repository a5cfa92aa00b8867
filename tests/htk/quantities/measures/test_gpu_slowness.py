"""Slowness of GPUs from totals of kernels against that from every kernel."""

import numpy as np
import pytest

from htk.analyses.kernels.gpu_speed import gpu_speed
from htk.quantities.measures.gpu_slowness import slowness_by_rank
from tests.htk.quantities.derived.kernel_rows import rows_of_rank, totals_of
from tests.tables import answer_of, make


def test_slowness_is_that_of_gpu_speed() -> None:
    rows = [r | {"device": 0} for rank in (0, 3, 7) for r in rows_of_rank(rank, seed=rank)]
    for row in rows:
        row["grid"] = row.get("grid") if row["name"] != "k2" else None
    kernels = [{k: v for k, v in r.items() if k not in ("step", "recomputed")} for r in rows]
    speeds = answer_of(gpu_speed, kernels=make("kernels", kernels))
    middle = float(np.median([speed["slowness_pct"] for speed in speeds]))
    expected = {speed["rank"]: speed["slowness_pct"] - middle for speed in speeds}
    assert slowness_by_rank(totals_of(rows)) == pytest.approx(expected, abs=1e-6)
    assert max(expected.values()) > 20
    assert slowness_by_rank(totals_of(rows[:120])) == {}, "one rank has nobody to compare with"
