"""Options from Python, SQL and agents are checked as the command line checks its own."""

from typing import Any

import numpy as np
import pytest

import htk
from htk import Session
from htk.analyses import ANALYSES, find_analysis
from htk.answers.option_values import checked_options
from htk.base.errors import UsageError


@pytest.fixture(scope="module")
def trace() -> Session:
    return htk.open("sample")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": "ten"}, "n='ten' is not a whole number"),
        ({"n": 2.5}, "n=2.5 is not a whole number"),
        ({"n": True}, "n=True is not a whole number"),
        ({"n": -1}, "n=-1 must be ≥ 0"),
        ({"n": 2**63}, "is not a number of at most 9,007,199,254,740,992"),
        ({"per": "rnk"}, "per='rnk': did you mean 'rank'?"),
        ({"sort_by": "zzz"}, "sort_by='zzz': it is one of "),
        ({"sort_by": 3}, "sort_by=3: it is one of "),
        ({"nn": 3}, "kernel_top has no option 'nn'; did you mean 'n'?"),
        (
            {"group": 1},
            "kernel_top has no option 'group'; it has by, source_depth, n,",
        ),
    ],
)
def test_what_is_wrong_is_named(trace: Session, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        trace.kernel_top(**options)
    assert said in str(raised.value)


def test_what_is_right_is_taken(trace: Session) -> None:
    assert trace.kernel_top(n=np.int32(3)).shape == trace.kernel_top(n=3).shape
    assert checked_options(find_analysis("op_tree"), {"min_pct": 1, "depth": None}) == {
        "min_pct": 1.0,
        "depth": None,
    }
    with pytest.raises(UsageError, match="min_pct='a lot' is not a finite number"):
        trace.op_tree(min_pct="a lot")
    with pytest.raises(UsageError, match="n=-2 must be ≥ 0"):
        trace.sql("from kernel_top(n := -2)")


@pytest.mark.parametrize("name", sorted(ANALYSES))
def test_defaults_are_values_of_their_options(name: str) -> None:
    analysis = find_analysis(name)
    defaults = {key: option.default for key, option in analysis.options.items()}
    assert checked_options(analysis, defaults) == defaults


def test_a_name_that_is_nearly_a_question_says_which(trace: Session) -> None:
    with pytest.raises(AttributeError, match="did you mean kernel_top"):
        trace.kernel_tpo  # noqa: B018
    with pytest.raises(AttributeError, match=r"htk.catalog\(\) lists"):
        trace.wholly_unlike  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean batch"):
        htk.whatif(trace).bach  # noqa: B018
    assert not hasattr(htk.whatif(trace), "_repr_latex_")
