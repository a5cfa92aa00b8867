"""Types of columns as NumPy holds them, and the row number that means none."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NONE = -1  # no row, no rank, no step
NO_TIME = -(1 << 62)  # a time that was not recorded; those of a recording lie within ±2^61 ns
