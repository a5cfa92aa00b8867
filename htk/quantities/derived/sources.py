"""Which source's records of collectives count, where several recorded the same calls."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of
from htk.base.columns.types import Mask

# Who knows times best comes first.
PREFERRED = (
    "kineto",
    "profiler_plugin",
    "inspector",
    "inspector_prometheus",
    "rccl_replay",
    "nccl_debug",
    "flight_recorder",
)


def best_source(collectives: pa.Table) -> str | None:
    """Return the source whose records count; None: none of them is preferred, and all count."""
    codes, names = codes_of(collectives["source"])
    present = {names[k].as_py() for k in np.unique(codes[codes >= 0]).tolist()}
    return next((source for source in PREFERRED if source in present), None)


def each_source(collectives: pa.Table) -> Iterator[Mask]:
    """Yield the rows that count together, whichever ranks are looked at."""
    codes, names = codes_of(collectives["source"])
    rest = np.ones(len(codes), bool)
    for k, source in enumerate(names.to_pylist()):
        among = codes == k
        if source in PREFERRED and among.any():
            yield among
            rest &= ~among
    if rest.any():
        yield rest
