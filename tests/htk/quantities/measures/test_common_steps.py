"""Steps that every device of every rank recorded whole."""

import numpy as np

from htk.quantities.measures.common_steps import common_steps, some_are_shorter
from tests.tables import make


def windows(rows: list[tuple[int, int, int | None, bool]]) -> list[dict[str, object]]:
    return [
        {"rank": rank, "cycle": 0, "device": device, "step": step, "complete": complete}
        for rank, device, step, complete in rows
    ]


def test_a_step_that_one_device_lacks_is_left_out_for_all() -> None:
    rows = [
        (0, 0, 1, True), (0, 0, 2, True), (0, 0, 3, True),
        (1, 0, 1, True), (1, 0, 2, True), (1, 0, 3, False),
        (1, 1, 2, True), (1, 1, None, True), (1, 1, 3, True),
    ]  # fmt: skip
    common = common_steps(make("step_windows", windows(rows)))
    assert common.tolist() == [step == 2 for _, _, step, _ in rows]


def test_without_a_step_in_common_there_is_none() -> None:
    rows = [(0, 0, 1, True), (1, 0, 2, True)]
    assert not common_steps(make("step_windows", windows(rows))).any()


def test_five_percent_less_is_a_recording_that_lacks_something() -> None:
    assert some_are_shorter(np.array([940, 1000]))
    assert not some_are_shorter(np.array([960, 1000])) and not some_are_shorter(np.array([]))
