"""How wide a band must be, by kind of what-if: learned from predictions held against outcomes.

A prediction's error is counted in units of the doubt that it stated; of the errors of one kind the
50th and 90th percentile (split-conformal: of n the ⌈q · (n + 1)⌉-th) make the bands. The table is
written by the scorecard. Kinds of which too little is known keep the normal distribution's, and no
kind goes below it: the outcomes are of simulated jobs, which are tidier than recorded ones.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

NORMAL = (0.674, 1.645)
_FEWEST = 20
ROADS = ("trace", "described")  # from a trace; from a stand-in for a job that is only described


def calibrated(edit_names: Sequence[str], road: str = "trace") -> tuple[float, float] | None:
    """Multiples of the stated doubt that 50 % and 90 % of such predictions stayed within."""
    known = _table().get(road, {})
    found = [known.get(name) for name in edit_names]
    told = [entry for entry in found if entry is not None and entry["n"] >= _FEWEST]
    if not told or len(told) < len(found):
        return None
    q50, q90 = (max(e[q] for e in told) for q in ("q50", "q90"))
    return max(q50, NORMAL[0]), max(q90, NORMAL[1])


@cache
def _table() -> dict[str, dict[str, dict[str, float]]]:
    text = files("htk.analyses.whatif").joinpath("bands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
