"""Which records of collectives count, where several sources recorded the same calls."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of
from htk.base.columns.types import Mask

# Profilers see the kernels of collectives, so they come first. Each records ranks of its own, so
# they count together.
_PROFILERS = frozenset((
    *("kineto", "kineto_perfetto", "nsight", "rocpd", "rocprof_json", "rocprof_perfetto"),
    *("ascend", "ascend_db", "ascend_tables", "proton", "xplane"),
))  # fmt: skip
# Of the others, who knows times best comes first; those that are not named here count together.
_PREFERRED = (
    "profiler_plugin",
    "inspector",
    "inspector_prometheus",
    "rccl_replay",
    "nccl_debug",
    "flight_recorder",
)


def counted_rows(collectives: pa.Table) -> Mask:
    """Return the rows that count: those of the first sources that recorded any."""
    return next(each_source(collectives), np.zeros(len(collectives), bool))


def each_source(collectives: pa.Table) -> Iterator[Mask]:
    """Yield the rows that count together, whichever ranks are looked at; those that count most
    first."""
    codes, names = codes_of(collectives["source"])
    sources = names.to_pylist()
    profilers = [k for k, source in enumerate(sources) if source in _PROFILERS]
    others = [[sources.index(source)] for source in _PREFERRED if source in sources]
    rest = np.ones(len(codes), bool)
    for numbers in (profilers, *others):
        among = np.isin(codes, numbers)
        if among.any():
            yield among
            rest &= ~among
    if rest.any():
        yield rest
