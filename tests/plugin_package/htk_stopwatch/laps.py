"""The slowest lap."""

from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.core.analysis import analysis
from htk.base.schema import table


@analysis(returns=table(slowest_ns=(pa.int64(), "The slowest lap.")), needs=("cpu_ops",))
def slowest_lap(cpu_ops: pa.Table, *, handicap_ns: Annotated[int, "Added to it."] = 0) -> pa.Table:
    """Which lap was the slowest?"""
    longest = pc.max(cpu_ops["end_ns"]).as_py()
    return pa.table([pa.array([longest + handicap_ns])], schema=slowest_lap.returns)
