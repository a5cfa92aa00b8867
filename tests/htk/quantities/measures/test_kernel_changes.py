"""A kernel that becomes slower in the second of two cycles whose steps have equal numbers."""

import pyarrow as pa
import pytest

from htk.quantities.derived.totals import kernel_totals
from htk.quantities.measures.kernel_changes import kernel_changes
from tests.tables import make

_STEPS = 6  # of each cycle
_SLOW_FROM = (1, 2)  # cycle and step


def _recording() -> dict[str, pa.Table]:
    """Three kernels in each step on rank 3, of some 1000, 2000 and 3000 ns; the second becomes
    1.5 times as long."""
    kernels, links, windows = [], [], []
    for cycle in (0, 1):
        for step in range(_STEPS):
            begin = 1_000_000 * cycle + 10_000 * step
            who = {"rank": 3, "cycle": cycle}
            windows.append(
                {**who, "step": step, "start_ns": begin, "end_ns": begin + 9_000, "complete": True}
            )
            for k, name in enumerate("abc"):
                length = 1000 * (k + 1) + (7 * step + 3 * k + 5 * cycle) % 11
                if name == "b" and (cycle, step) >= _SLOW_FROM:
                    length += 1000
                span = {"start_ns": begin, "end_ns": begin + length, "name": name}
                kernels.append({**who, **span, "kind": "compute", "grid": "[1]", "block": "[1]"})
                links.append({"step": step})
    totals = kernel_totals(
        make("kernels", kernels),
        make("kernel_links", links),
        make("kernel_passes", [{}] * len(kernels)),
    )
    return {"kernel_totals": totals, "step_windows": make("step_windows", windows)}


def test_the_first_slow_step_is_named_with_its_cycle() -> None:
    (change,) = kernel_changes(**_recording())
    assert (change.name, change.rank, (change.cycle, change.step)) == ("b", 3, _SLOW_FROM)
    assert change.ratio == pytest.approx(1.5, abs=0.01)
    assert change.lost_ns == pytest.approx(1000 * (_STEPS - 2), abs=40)
