"""Occupancy by the vendors' rules against what the profiler recorded of each kernel."""

from htk.base.mappings import Fields
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import Subject, list_columns
from htk.verdicts.verify.tally import NotApplicable, Tally

_NEAR = 1.0  # percent; the profiler rounds to whole ones
_WHICH = ("name", "grid", "block")


def checks() -> list[Check]:
    """Return the check of occupancy."""
    what = "kernel-occupancy: resident blocks give the recorded occupancy, to the percent"
    return [Check("occupancy", what, _check_occupancy)]


def _check_occupancy(subject: Subject, tally: Tally) -> None:
    table = subject.trace.tables["kernels"].select([*_WHICH, "occupancy_pct"])
    rows = zip(*list_columns(table, *_WHICH, "occupancy_pct"), strict=True)
    recorded = {tuple(key) for *key, occupancy in rows if occupancy}
    if not recorded:
        raise NotApplicable("no occupancy was recorded")
    for row in subject.answer("kernel_occupancy", n=0).to_pylist():
        key = tuple(row[name] for name in _WHICH)
        if key in recorded and row["resident_blocks"] and row["blocks_per_sm"]:
            computed = _compute_occupancy(row)
            shown = row["occupancy_pct"]
            answered = shown if abs(computed - shown) <= _NEAR else computed
            tally.equal(" ".join(map(str, key)), answered, shown)
    if not tally.compared:
        raise NotApplicable("registers, shared memory or the GPU's limits were not recorded")


def _compute_occupancy(row: Fields) -> float:
    """Return the occupancy of as many blocks as there are, at most those that fit."""
    blocks = min(row["resident_blocks"], row["blocks_per_sm"])
    return float(row["occupancy_limit_pct"] * blocks / row["resident_blocks"])
