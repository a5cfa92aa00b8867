"""Cases of which some run with every run of the tests, and all at night."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int = 2) -> list[Any]:
    """Leave all but each second case, or as many as are said, to the nightly run."""
    return [case if k % every == 0 else _at_night(case) for k, case in enumerate(cases)]


def _at_night(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
