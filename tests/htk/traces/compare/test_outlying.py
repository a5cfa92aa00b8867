"""Steps that are far from the others are left out, unless they are many or hardly any are left."""

import numpy as np
import pytest

from htk.traces.compare.outlying import usual_steps


@pytest.mark.parametrize(
    ("steps", "outlying"),
    [
        ([125, 155, 155, 154, 156], [0]),
        ([100, 101, 160, 99, 100], [2]),
        ([100, 101, 99, 100, 101.5], []),  # within 2 %, however alike the others are
        ([100, 120, 90, 110, 80], []),  # they all differ so
        ([100, 100, 100, 150, 150, 150], []),  # half of them: two kinds of step
        ([100, 100, 150], []),  # two would be left
        ([100], []),
        ([], []),
    ],
)
def test_which_steps_are_outlying(steps: list[float], outlying: list[int]) -> None:
    usual = usual_steps(np.array(steps, float))
    assert np.flatnonzero(~usual).tolist() == outlying
