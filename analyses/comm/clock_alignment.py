"""How far the clocks of the ranks are apart."""

import pyarrow as pa

from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import TWO_ROUNDS
from htk.base.schema.comm import RANK_CLOCKS


@analysis(
    returns=RANK_CLOCKS,
    chart=Bar("rank", "offset_ns"),
    needs=("collectives",),
    spread=TWO_ROUNDS,
)
def clock_alignment(rank_clocks: pa.Table) -> pa.Table:
    """How far are the clocks of the ranks apart, and how well is that known?

    Weighted least squares over the ends of collectives that end everywhere at once, in groups that
    overlap. Ranks whose groups share no rank with others are not comparable: `aligned_with` says
    which are. Other questions put ranks on one clock where `aligned` says so (--no-align: never).
    """
    return rank_clocks
