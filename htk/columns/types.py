"""Types of columns as NumPy holds them, and the row number that means none."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NONE = -1  # no row, no rank, no step
