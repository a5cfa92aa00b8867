"""What to change first, of a recording and of what became slower since another one."""

import pyarrow as pa

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.traces.trace.trace import Trace
from htk.verdicts.comparison.causes import ChangeCause, Kind
from htk.verdicts.comparison.compared import ComparedWork, compare_work
from htk.verdicts.comparison.wording import describe_cause, next_commands

_SINCE = "than in the other recording"
_WHAT: dict[Kind, str] = {
    "gpu": f"GPUs are slower {_SINCE}",
    "kernel": f"a kernel became slower {_SINCE}",
    "links": f"transfers take longer {_SINCE}",
    "loader": f"data loading takes longer {_SINCE}",
    "allocator": f"memory allocation takes longer {_SINCE}",
    "program": f"other kernels run {_SINCE}",
}
_ADVICE = (
    "see what changed between the two: sizes, library versions, algorithm (cudnn.benchmark), "
    "compiler, nodes; {} shows more"
)
_OF_NOISE = 1.645 / 2  # 90 % of what two standard deviations are


def recommendations_against(new: Trace, base: Trace, *, min_pct: float = 1.0) -> Result:
    """Return the recommendations of `new`, and before them what became slower since `base`, where
    that is more than chance explains: the causes of `htk diff`."""
    base.need("kernels")
    answer = ask_trace(new, "recommendations", min_pct=min_pct)
    work = compare_work(base.tables, new.tables)
    if work.base is None or work.new is None:
        raise UsageError(
            "--against compares the cost of a step, and one of the recordings has no complete "
            "steps: call prof.step() once for each iteration"
        )
    facts = dict(answer.coverage)
    if work.base.ranks.tolist() != work.new.ranks.tolist():
        facts["against"] = "not compared: other ranks were recorded"
    steps = work.new.step_ns.shape[1]
    least_ns = min_pct / 100 * float(work.new.step_ns.mean())
    slower = [cause for cause in work.causes if cause.part_ns >= least_ns]
    rows = [
        _build_cause_row(cause, work, steps, int(facts["recorded_window_ns"])) for cause in slower
    ]
    table = pa.Table.from_pylist(rows, schema=answer.table.schema)
    return Result(answer.analysis, pa.concat_tables([table, answer.table]), facts)


def _build_cause_row(cause: ChangeCause, work: ComparedWork, steps: int, window_ns: int) -> Fields:
    command, *_ = next_commands([cause], "BASE", "NEW")
    names = cause.by_rank if cause.kind in ("kernel", "program") else ()
    recorded_ns = round(cause.recorded_ns * steps)
    row: Fields = {
        "finding": _WHAT[cause.kind],
        "evidence": describe_cause(cause, work),
        "advice": _ADVICE.format(command),
        "basis": "replay" if cause.is_replayed else "recorded",
        "gain_ns": recorded_ns,
        "gain_pct": 100.0 * recorded_ns / max(window_ns, 1),
        "overlaps": "what other findings say of the same time",
        "analysis": "diff",
        "event_names": "\n".join(names) or None,
    }
    if cause.is_replayed:
        wide = round(_OF_NOISE * (cause.noise_ns or 0.0))
        gain = round(cause.part_ns)
        row |= {"step_gain_ns": gain, "step_gain_ns_lo90": gain - wide}
        row["step_gain_ns_hi90"] = gain + wide
    return row
