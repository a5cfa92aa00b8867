"""A speed-up said to come from one part of the step, held against a recording of it (Amdahl).

The recorded step is replayed without that part at all: what then remains no change of the part can
beat. How much faster the part itself would have to be follows from the same bound.
"""

import re
from collections.abc import Iterator

from htk.base.errors import UsageError
from htk.verdicts.claims.checks import IMPOSSIBLE, NEEDS, PLAUSIBLE, ClaimCheck
from htk.verdicts.claims.wording import SpeedupClaim
from htk.whatif.amdahl import needed_share
from htk.whatif.answer import Answer
from htk.whatif.api import WhatIf

_NEAR_NOTHING = 10.0  # times faster: more than fused kernels were measured to be
# Parts that edits of their own take away.
_EDITS = {
    "overlap": (("overlap", "perfect"), "communication that could be hidden"),
    **dict.fromkeys(
        ("communication", "nccl", "rccl", "network", "collectives"),
        (("network", "bandwidth=1000,latency=0.001"), "the time of transfers"),
    ),
    "cudagraphs": (("graphs", "on"), "launches"),
    "dataloading": (("no_data_wait", "on"), "waiting for data"),
}


def recorded_checks(claim: SpeedupClaim, asked: WhatIf) -> list[ClaimCheck]:
    """Return the checks of a speed-up against a recording."""
    edit, words = _find_removing_edit(claim.part, asked)
    (answer,) = asked.change(*edit).answers()
    if answer.step_ns is None:
        return [
            ClaimCheck(
                "Amdahl", NEEDS, None, f"cannot be told from this recording: {answer.verdict}"
            )
        ]
    return [*_check_bound(claim, answer, words)]


def _find_removing_edit(part: str, asked: WhatIf) -> tuple[tuple[str, str], str]:
    """Return the edit that takes the part out of the step, and what it was found as."""
    plain = re.sub(r"[^a-z0-9]", "", part.lower())
    if plain in _EDITS:
        return _EDITS[plain]
    edit = ("replace", f"(?i){re.escape(part)}=gone")
    try:
        asked.change(*edit).answers()
    except UsageError:
        raise UsageError(
            f"nothing of the step is named like {part!r}; name a kernel, operator or module that "
            'htk kernel-top or htk op-breakdown lists, e.g. "1.2x by aten::mul"'
        ) from None
    return edit, f"what is named {part}"


def _check_bound(claim: SpeedupClaim, answer: Answer, words: str) -> Iterator[ClaimCheck]:
    assert answer.step_ns is not None
    _, _, least, _ = answer.intervals
    at_most = answer.measured_ns / answer.step_ns
    surely = answer.measured_ns / (least or answer.step_ns)
    share = 100 * (1 - 1 / at_most)
    needed = 100 * needed_share(claim.speedup)
    bound = (
        f"a step {claim.speedup:g} times as fast needs {needed:.0f} % of it to go; without {words} "
        f"{max(share, 0.0):.1f} % goes, {at_most:.3f}x (90 %: up to {surely:.3f}x)"
    )
    use = 100 * (1 - 1 / claim.speedup) / max(1 - 1 / at_most, 1e-9) if claim.speedup > 1 else None
    use = None if use is None or use > 1e5 else use
    if claim.speedup > surely:
        yield ClaimCheck(
            "Amdahl", IMPOSSIBLE, use, f"not by this part alone, on this recording: {bound}"
        )
        return
    if claim.speedup > at_most:
        yield ClaimCheck("Amdahl", NEEDS, use, f"needs more than the part takes: {bound}")
        return
    kept = 1 - (1 - 1 / claim.speedup) / (1 - 1 / at_most)
    faster = float("inf") if kept <= 0 else 1 / kept
    if faster > _NEAR_NOTHING:
        reason = f"needs the part to take next to no time: {bound}"
        yield ClaimCheck("Amdahl", NEEDS, use, reason)
    else:
        yield ClaimCheck(
            "Amdahl", PLAUSIBLE, use, f"if the part is {faster:.2f} times as fast: {bound}"
        )
