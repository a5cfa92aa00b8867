"""How faces show the answer to a what-if: its columns and its question."""

import pyarrow as pa

from htk.analysis import Analysis
from htk.chart import Bar
from htk.schema import TEXT, table

RETURNS = table(
    whatif=(TEXT, "The edits."),
    step_time_ns=(pa.int64(), "Predicted GPU step; null: refused."),
    step_time_ns_lo50=(pa.int64(), "Half of such predictions come true above this …"),
    step_time_ns_hi50=(pa.int64(), "… and below this."),
    step_time_ns_lo90=(pa.int64(), "Nine of ten above this …"),
    step_time_ns_hi90=(pa.int64(), "… and below this."),
    measured_step_time_ns=(pa.int64(), "The recorded step, or as given."),
    change_pct=(pa.float64(), "Predicted over measured step, less one."),
    time_per_sample_change_pct=(pa.float64(), "The same, of the time for one sample of a rank."),
    tokens_per_s=(pa.float64(), "Of the whole job; null where shapes do not tell the tokens."),
    mfu_pct=(pa.float64(), "Model FLOPs utilisation; null: model FLOPs are not counted here."),
    exposed_comm_ns=(pa.int64(), "Communication that no compute hides, mean over ranks."),
    idle_ns=(pa.int64(), "Time that a GPU runs nothing, mean over ranks."),
    peak_memory_bytes=(pa.int64(), "Predicted peak; null: not predicted."),
    p_oom=(pa.float64(), "Probability of running out of memory; null: not predicted."),
    naive_linear_ns=(pa.int64(), "What a step in proportion to the batch would take."),
    verdict=(TEXT, "trusted, indicative or refused, and why."),
    waterfall=(TEXT, "The change by cause in ns, JSON; sums to the whole."),
    doubt=(TEXT, "The band by cause, one sigma in percent, JSON."),
    assumptions=(TEXT, "In words."),
)


def whatif() -> pa.Table:
    """What would a step take if this were changed?"""
    return RETURNS.empty_table()


LABEL: Analysis[...] = Analysis(whatif, RETURNS, Bar("whatif", ("step_time_ns",)))
