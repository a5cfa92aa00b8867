"""Clock, power and heat of a GPU that is slower than the others, where counters tell them."""

import numpy as np

from htk.base.columns.arrow import match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.core.humanize import format_value
from htk.base.mappings import NamedTables
from htk.base.schema.columns import unit_of
from htk.quantities.measures.gpu_counters import COLUMNS, SpanMeans
from htk.verdicts.causes.recorded import CauseEvidence

_LOWER = 0.98  # of the others' clock; what is nearer is chance
_BESIDE = ("power_w", "temperature_c")


def describe_lower_clock(tables: CauseEvidence | NamedTables, rank: int) -> str:
    """Return at which clock a rank's kernels ran, in words, where it is below the other ranks';
    nothing where it is not, or was not sampled."""
    counters = tables["counters"]
    if not counters.num_rows:
        return ""
    kernels = tables["kernels"]
    rows = np.flatnonzero(match_texts(kernels["kind"], "compute".__eq__))
    ranks = Groups.by_keys([read_keys(kernels["rank"])[rows]])
    means = dict(zip(COLUMNS, SpanMeans(counters, kernels).of_groups(ranks, rows), strict=True))
    clock = read_numbers(means["clock_mhz"], np.nan)
    is_own = ranks.keys[:, 0] == rank
    own = clock[is_own]
    others = clock[~is_own]
    if not np.isfinite(own).any() or not np.isfinite(others).any():
        return ""
    usual = float(np.nanmedian(others))
    if own[0] >= _LOWER * usual:
        return ""
    row = int(np.argmax(is_own))
    beside = [format_value(value, unit_of(q)) for q in _BESIDE if (value := means[q][row].as_py())]
    words = f"its clock fell to {own[0]:,.0f} MHz" + (
        f" at {' and '.join(beside)}" if beside else ""
    )
    return f"{words} (the others': {usual:,.0f} MHz)"
