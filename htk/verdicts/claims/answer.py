"""A claim's checks as one answer: the verdict, the reasons, and the measurement that decides."""

from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.schema import FLOAT64, TEXT, table
from htk.verdicts.claims.checks import IMPOSSIBLE, NEEDS, PLAUSIBLE, ClaimCheck, checks, verdict_of
from htk.verdicts.claims.described import ClaimedJob
from htk.verdicts.claims.recorded import recorded_checks
from htk.verdicts.claims.wording import SpeedupClaim, find_confusions, speedup_claim
from htk.whatif.api import WhatIf

CONFUSED = "confused"

RETURNS = table(
    check=(TEXT, "What the claim was held against."),
    verdict=(TEXT, "impossible, needs (more than was seen), plausible, or confused (wording)."),
    use_pct=(FLOAT64, "Of that bound, what the claim takes; null: not a bound of a number."),
    reason=(TEXT, "The figures, and what it needs."),
)
LABEL = Label("claim", "Can this number be?")

_DECIDES = {
    "arithmetic": "record three steps and hold htk flops against the claim",
    "matrix products": "time the job's own matrix products alone, at its shapes and precision",
    "pipeline": "record a step of the first and the last stage: htk time-breakdown has idle time",
    "memory bandwidth": "record a step: htk roofline shows how near memory's rate it is",
    "network": "run nccl-tests on the job's nodes, and htk whatif --network curve=on with it",
    "memory": "record one step with memory events: htk memory-peaks",
    "memory of a step": "record one step with memory events: htk memory-peaks",
    "comparable jobs": "record three steps of it: htk summary shows what it does otherwise",
    "numbers agree": "state tokens of a step, its time and GPUs: the other figures follow",
    "Amdahl": "record the step before and after at equal batch: htk diff names what became shorter",
}
_OTHERWISE = (
    "what else such a change may bring: a larger batch in the memory that it frees, no retries of "
    "the allocator, another baseline (precision, compilation), a step timed with its start-up"
)


def judge_claim(job: ClaimedJob | None, text: str = "", asked: WhatIf | None = None) -> Result:
    """Return a row for each check: of a described job, of a recording, of the wording."""
    speedup = speedup_claim(text) if text else None
    rows: list[ClaimCheck] = [] if job is None else checks(job)
    if asked is not None:
        if speedup is None and job is None and not find_confusions(text):
            raise UsageError(
                f'{text!r} names no speed-up and no part: write it as "1.594x by RMSNorm"'
            )
        rows += [] if speedup is None else recorded_checks(speedup, asked)
    elif speedup is not None:
        rows.append(_check_unrecorded(speedup))
    verdict = verdict_of(rows) if rows else ""
    rows += [ClaimCheck(c.name, CONFUSED, None, c.reason) for c in find_confusions(text)]
    if not rows:
        raise UsageError(
            "a claim needs a number to be judged: --model and --gpus with --mfu or another number, "
            'or "1.594x by RMSNorm" with --trace'
        )
    return Result(LABEL, _build_table(rows), _collect_facts(rows, verdict, speedup))


def _check_unrecorded(speedup: SpeedupClaim) -> ClaimCheck:
    """Return what a speed-up needs where no recording shows the part's share."""
    share = 100 * (1 - 1 / speedup.speedup) if speedup.speedup > 1 else 0.0
    reason = (
        f"needs {speedup.part} to hold more than {share:.0f} % of the step: give a recording of it "
        "(--trace)"
    )
    return ClaimCheck("Amdahl", NEEDS, None, reason)


def _build_table(rows: Sequence[ClaimCheck]) -> pa.Table:
    checked = [{"check": row.name} | asdict(row) for row in rows]
    return pa.Table.from_pylist(checked, schema=RETURNS)


def _collect_facts(
    rows: Sequence[ClaimCheck], verdict: str, speedup: SpeedupClaim | None
) -> dict[str, object]:
    facts: dict[str, object] = {"verdict": verdict or None}
    judged = [row for row in rows if row.verdict == verdict and row.name in _DECIDES]
    if not judged:
        return facts
    tightest = max(judged, key=lambda row: row.use_pct or 0.0)
    facts["decided_by"] = _DECIDES[tightest.name]
    if verdict in (IMPOSSIBLE, NEEDS) and speedup is not None:
        facts["otherwise"] = _OTHERWISE
    return facts


__all__ = ["CONFUSED", "IMPOSSIBLE", "LABEL", "NEEDS", "PLAUSIBLE", "RETURNS", "judge_claim"]
