"""Shifts in the middle of a recording, planted."""

import numpy as np

from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.traces.compare.changed_within import changed_within

STEPS = 40


def side(times: dict[str, np.ndarray], numbers: tuple[int, ...] = ()) -> RecordedBaseline:
    kernels = {name: Series(1.0, t, np.array([t.mean()]), t) for name, t in times.items()}
    return RecordedBaseline(STEPS, (0,), {"kernel": kernels}, numbers=numbers)


def times(shift_at: int | None, share: float = 0.2) -> np.ndarray:
    noise = np.random.default_rng(3).normal(0, 1, STEPS)
    shifted = np.arange(STEPS) >= (STEPS if shift_at is None else shift_at)
    return 1000 + noise + 1000 * share * shifted


def test_the_kernel_and_the_step_from_which_on_it_is_slower() -> None:
    numbers = tuple(range(100, 100 + STEPS))
    (note,) = changed_within(side({"gemm": times(25), "add": times(None)}, numbers), "base")
    assert note.startswith("within the base, kernel gemm is +20.0 % from step 125 on")


def test_without_a_shift_or_below_a_percent_there_is_no_note() -> None:
    numbers = tuple(range(STEPS))
    assert changed_within(side({"gemm": times(None)}, numbers), "base") == []
    assert changed_within(side({"gemm": times(25, 0.009)}, numbers), "base") == []


def test_a_file_of_a_baseline_has_no_numbers_of_steps() -> None:
    assert changed_within(side({"gemm": times(25)}), "base") == []
