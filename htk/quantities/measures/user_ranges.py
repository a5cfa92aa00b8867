"""Which user ranges hold what was launched: the one answer for every question and selection."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_booleans, read_numbers
from htk.base.columns.types import NONE, Mask
from htk.quantities.derived.user_ranges import find_enclosing_ranges


def held_by(
    wanted: Mask, annotations: pa.Table, annotation_links: pa.Table, links: pa.Table, rows: pa.Table
) -> Mask:
    """Return what of one recording lies inside a wanted range, steps of the profiler included.

    `links` has `annotation_row` and `step` of each of the `rows`.
    """
    inside = np.zeros(links.num_rows, bool)
    for held, ranges in find_enclosing_ranges(annotations, annotation_links, links, rows):
        inside[held[wanted[ranges]]] = True
    steps = wanted & mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"])
    chosen = read_numbers(annotations["step"], NONE)[steps]
    return inside | np.isin(read_numbers(links["step"], NONE - 1), chosen)
