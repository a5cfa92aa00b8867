"""Times as trace files write them: microseconds with three decimals, exact, which no float is."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.schema import STRING

_MICROSECONDS = pa.decimal128(19, 3)


def as_microseconds(times_ns: NDArray[np.int64]) -> pa.Array:
    """Return nanoseconds as texts of microseconds."""
    words = np.empty((len(times_ns), 2), np.int64)  # of a decimal of 128 bits
    words[:, 0], words[:, 1] = times_ns, times_ns >> 63
    exact = pa.Array.from_buffers(_MICROSECONDS, len(times_ns), [None, pa.py_buffer(words)])
    return exact.cast(STRING)


def as_nanoseconds(microseconds: pa.Array) -> NDArray[np.int64]:
    """Return texts of microseconds as nanoseconds; ArrowInvalid where one has more decimals."""
    exact = microseconds.cast(STRING).cast(_MICROSECONDS)
    return np.frombuffer(exact.buffers()[1], np.int64)[::2][: len(exact)]
