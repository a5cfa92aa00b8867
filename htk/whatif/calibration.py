"""Widths of prediction intervals by kind of what-if, learned from predictions and outcomes.

A prediction's error is counted in units of the doubt that it stated; of the errors of one kind, of
simulated jobs and measured rows together, the 50th and 90th percentile (split-conformal: of n the
⌈q · (n + 1)⌉-th) make the bands. Where errors were smaller than stated, the normal distribution's
stay, unless very many are known; then bands are narrower, but not by as much: simulated clusters
are tidier than recorded ones. For the same reason the 50 % band narrows by no more than that of
90 %, which the odd cases among the outcomes hold open. The table is written by the scorecard.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import ceil

NORMAL = (0.674, 1.645)
_SHARES = (0.5, 0.9)
_FEWEST = 9  # of fewer no 90th percentile is known
_MANY = 100
_MORE = 0.05  # that must hold beside what was asked, for a band to be narrower than stated


def quantile(scores: Sequence[float], share: float) -> float:
    """The split-conformal quantile: of n scores the ⌈share · (n + 1)⌉-th, at most the largest."""
    ordered = sorted(scores)
    nth = ceil(round(share * (len(ordered) + 1), 9))  # 0.55 · 100 is a little more than 55
    return ordered[min(nth, len(ordered)) - 1]


def factors(scores: Sequence[float], n: int | None = None) -> tuple[float, float]:
    """Multiples of the stated doubt for the 50 % and the 90 % band.

    `scores`: errors over the doubt that was stated; `n`: of how many these are a part.
    """
    if len(scores) < _FEWEST:
        return NORMAL
    many = (len(scores) if n is None else n) >= _MANY
    half, most = (
        max(quantile(scores, share), min(quantile(scores, share + _MORE), usual) if many else usual)
        for share, usual in zip(_SHARES, NORMAL, strict=True)
    )
    return max(half, NORMAL[0] * min(1.0, most / NORMAL[1])), most


def calibrated(edit_names: Sequence[str]) -> tuple[float, float]:
    """Multiples of the stated doubt that 50 % and 90 % of such predictions stayed within.

    Of several edits the widest counts, of one that nothing is known of the normal distribution's.
    """
    entries = [_table().get(name) for name in edit_names]
    each = [NORMAL if entry is None else (entry["half"], entry["most"]) for entry in entries] or [
        NORMAL
    ]
    return max(half for half, _ in each), max(most for _, most in each)


@cache
def _table() -> dict[str, dict[str, float]]:
    text = files("htk.whatif").joinpath("calibration.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
