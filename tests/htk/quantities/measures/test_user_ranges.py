"""Which ranges hold what: against a walk from parent to parent."""

import numpy as np
import pyarrow as pa

from htk.quantities.measures.user_ranges import find_enclosing_ranges, held_by
from tests.tables import make

#  0 step 7 (0), 1 forward in it, 2 layer in 1, 3 backward in 0, 4 alone
PARENT = [None, 0, 1, 0, None]
INNERMOST = [2, 3, None, 4, 1, 2]  # of six rows


def tables() -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    annotations = make(
        "annotations",
        [{"start_ns": 0, "end_ns": 9, "step": k} for k in (7, None, None, None, None)],
    )
    ranges = make("annotation_links", [{"parent_row": parent} for parent in PARENT])
    steps = [None, None, 7, None, 8, None]  # the third row is in the step by its number alone
    links = make(
        "kernel_links",
        [{"annotation_row": i, "step": s} for i, s in zip(INNERMOST, steps, strict=True)],
    )
    rows = make("kernels", [{"rank": 1, "cycle": 0}] * 6)
    return annotations, ranges, links, rows


def around(row: int) -> set[int]:
    """Ranges round a row, parent by parent."""
    found, inside = set(), INNERMOST[row]
    while inside is not None:
        found.add(inside)
        inside = PARENT[inside]
    return found


def test_every_range_round_every_row() -> None:
    pairs = {
        (row, range_)
        for rows, held in find_enclosing_ranges(*tables())
        for row, range_ in zip(rows.tolist(), held.tolist(), strict=True)
    }
    assert pairs == {(row, range_) for row in range(6) for range_ in around(row)}


def test_rows_inside_a_wanted_range_or_its_step() -> None:
    annotations, ranges, links, rows = tables()
    for wanted in range(1, 5):
        mask = np.arange(5) == wanted
        held = held_by(mask, annotations, ranges, links, rows)
        assert held.tolist() == [wanted in around(row) for row in range(6)]
    of_step = held_by(np.arange(5) == 0, annotations, ranges, links, rows)
    assert of_step.tolist() == [True, True, True, False, True, True]  # row 2 by its number
