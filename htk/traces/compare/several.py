"""Several recordings side by side, each against the first: step time, its parts, what differs most.

A difference is significant where it exceeds what chance explains, as between two recordings.
"""

from collections.abc import Sequence

import pyarrow as pa

from htk.base.core.humanize import format_signed_duration, shorten_text
from htk.base.core.label import Label
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.traces.compare.baseline import RecordedBaseline
from htk.traces.compare.runs import list_cost_changes

_PARTS = {
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed communication",
    "exposed_memory_ns": "exposed copies",
    "idle_ns": "idle",
}
_NAME = 60  # letters of a kernel's name

RETURNS = table(
    name=(TEXT, "The run; the first is the base."),
    step_time_ns=(INT64, "A complete step, mean over ranks and steps."),
    diff_ns=(FLOAT64, "That, less the base's; null where they do not compare."),
    diff_pct=(FLOAT64, "The same, of the base's step."),
    change=(TEXT, "slower, faster, or same: within what chance explains; null: that is unknown."),
    finding=(TEXT, "The kernel whose time in a step differs most, where beyond chance."),
    compute_ns=(INT64, "Compute in a step, mean over ranks and steps."),
    exposed_comm_ns=(INT64, "Communication that no compute hides, in a step."),
    exposed_memory_ns=(INT64, "Copies that neither hides, in a step."),
    idle_ns=(INT64, "Nothing ran on the GPU, in a step."),
    rank_count=(INT32, "Ranks with complete steps."),
    step_count=(INT32, "Complete steps; 0: nothing is told of steps."),
)
SEVERAL = Label("runs_side_by_side", "How do several runs compare with the first?")


def side_by_side(runs: Sequence[tuple[str, RecordedBaseline]]) -> pa.Table:
    """Return a row for each run, the base first."""
    base = runs[0][1]
    rows = [
        _build_run_row(name, run, None if k == 0 else base) for k, (name, run) in enumerate(runs)
    ]
    return pa.Table.from_pylist(rows, schema=RETURNS)


def _build_run_row(name: str, run: RecordedBaseline, base: RecordedBaseline | None) -> Fields:
    row: Fields = {"name": name, "rank_count": len(run.ranks), "step_count": run.steps}
    parts = run.kinds.get("time", {})
    if run.steps and "total" in parts:
        row["step_time_ns"] = round(parts["total"].mean)
    if run.steps and "total" in parts and not run.on_host:
        # A part that never ran has no series; with a total that is a zero, not a gap.
        row |= {c: round(parts[p].mean) if p in parts else 0 for c, p in _PARTS.items()}
    return row | (_compare_with_base(base, run) if base is not None else {})


def _compare_with_base(base: RecordedBaseline, run: RecordedBaseline) -> Fields:
    """Return what differs from the base; a GPU's step and a host's do not compare."""
    if not (base.steps and run.steps):
        return {"finding": "Without complete steps on both sides nothing is compared."}
    if base.on_host != run.on_host:
        return {"finding": "Timed on the host here and on the GPU there: not compared."}
    rows = list_cost_changes(base, run, ("time", "kernel"), 0).to_pylist()
    (total,) = [r for r in rows if r["by"] == "time" and r["name"] == "total"]
    has_noise = total["significant"] is not None
    kernel = next((r for r in rows if r["by"] == "kernel" and r["significant"]), None)
    return {
        "diff_ns": total["diff_ns"],
        "diff_pct": total["diff_pct"],
        "change": total["change"] if has_noise else None,
        "finding": _describe_kernel(kernel)
        if has_noise
        else "A single step tells nothing of chance.",
    }


def _describe_kernel(kernel: Fields | None) -> str:
    """Return the kernel that differs most, and by how much in a step."""
    if kernel is None:
        return "No kernel differs by more than chance."
    change = format_signed_duration(kernel["diff_ns"])
    way = {"added": "new, ", "removed": "gone, "}.get(kernel["change"], "")
    return f"{shorten_text(kernel['name'], _NAME)}: {way}{change}"
