"""Which user ranges hold what was launched: the one answer for every question and selection."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import numbers, truths, valid
from htk.base.columns.groups import row_of
from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.user_ranges import enclosing


def held_by(
    wanted: Mask, annotations: pa.Table, annotation_links: pa.Table, links: pa.Table, rows: pa.Table
) -> Mask:
    """Return which rows lie inside a wanted range, steps of the profiler included.

    `links` has `annotation_row` and `step` of each of the `rows`, which have a rank and a cycle.
    """
    inside = np.zeros(links.num_rows, bool)
    for held, ranges in enclosing(annotations, annotation_links, links, rows):
        inside[held[wanted[ranges]]] = True
    steps = wanted & valid(annotations["step"]) & ~truths(annotations["on_gpu"])
    if steps.any():
        chosen = _step_keys(annotations, annotations["step"])[steps]
        inside |= row_of(chosen, _step_keys(rows, links["step"])) != NONE
    return inside


def _step_keys(rows: pa.Table, step: pa.ChunkedArray) -> Ints:
    """Rank, cycle and step of each row; -2 where there is no step, which is no step's number."""
    columns = [numbers(rows["rank"], NONE), numbers(rows["cycle"], NONE), numbers(step, -2)]
    return np.column_stack([column.astype(np.int64) for column in columns])
