"""What to change first, of a recording and of what became slower since another one."""

import numpy as np
import pyarrow as pa

from htk.answers.ask import ask
from htk.answers.output.result import Result
from htk.base.columns.arrow import number, numbers, texts, truths
from htk.base.core.analysis import coverage_of
from htk.base.core.humanize import format_duration, shorten
from htk.base.errors import UsageError
from htk.base.names.kinds import kind_of
from htk.base.schema import FLOAT64, INT64
from htk.traces.compare.runs import compare
from htk.traces.trace.trace import Trace

REGRESSED = "a kernel became slower than in the other recording"
ADDED = "a kernel is new since the other recording"
_ADVICE = (
    "see what changed between the two: sizes, library versions, algorithm (cudnn.benchmark), "
    "compiler; htk diff shows all differences"
)


def recommendations_against(new: Trace, base: Trace, *, min_pct: float = 1.0) -> Result:
    """Return the recommendations of `new`, and before them kernels that compute longer than in
    `base`, where that is more than chance explains."""
    base.need("kernels")
    answer = ask(new, "recommendations", min_pct=min_pct)
    window = int(answer.coverage["recorded_window_ns"])
    changed = compare(base.tables, new.tables, ("kernel",), 0)
    facts = coverage_of(changed)
    if facts.get("compared") != "a step":
        raise UsageError(
            "--against compares the cost of a step, and one of the recordings has no complete "
            "steps: call prof.step() once for each iteration"
        )
    steps = _steps(new)
    rows = [
        row
        for row in changed.to_pylist()
        if row["significant"] and row["change"] in ("slower", "added") and row["diff_ns"] > 0
        and kind_of(row["name"], "kernel").kind == "compute"
        and 100 * row["diff_ns"] * steps >= min_pct * window
    ]  # fmt: skip
    rows.sort(key=lambda row: -row["diff_ns"])
    table = pa.concat_tables([_table(rows, steps, window, answer.table.schema), answer.table])
    return Result(answer.analysis, table, dict(answer.coverage) | dict(facts))


def _steps(trace: Trace) -> float:
    """Return how many complete steps a rank recorded, on average."""
    windows = trace.tables["step_windows"]
    complete = truths(windows["complete"])
    ranks = np.unique(numbers(windows["rank"], -1)[complete])
    return float(complete.sum()) / max(len(ranks), 1)


def _table(rows: list[dict[str, float]], steps: float, window: int, schema: pa.Schema) -> pa.Table:
    gain = np.array([round(row["diff_ns"] * steps) for row in rows], np.int64)
    nothing = [None] * len(rows)
    columns = {
        "finding": texts([REGRESSED if row["base_ns"] else ADDED for row in rows]),
        "evidence": texts([_evidence(row) for row in rows]),
        "advice": texts([_ADVICE] * len(rows)),
        "gain_ns": number(gain, INT64),
        "gain_pct": number(100.0 * gain / max(window, 1), FLOAT64),
        "overlaps": texts(["what other findings say of the same kernel"] * len(rows)),
        "analysis": texts(["diff"] * len(rows)),
        "basis": texts(["recorded"] * len(rows)),
        "event_names": texts([str(row["name"]) for row in rows]),
    }
    arrays = [columns.get(f.name, pa.array(nothing, f.type)) for f in schema]
    return pa.table([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def _evidence(row: dict[str, float]) -> str:
    was = row["base_ns"]
    now = row["new_ns"]
    ratio = f" ({now / was:.2f}x)" if was else ""
    calls = f"{row['base_count']:.0f} → {row['new_count']:.0f} calls"
    return (
        f"{shorten(str(row['name']))}: {format_duration(was)} → {format_duration(now)} a step"
        f"{ratio}, {calls}"
    )
