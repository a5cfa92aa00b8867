"""The tables of one small file, as a parser returns them."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_texts
from htk.base.core.parser import Parsed


def parsed(rows: int = 3) -> Parsed:
    table = pa.table({"n": np.arange(rows), "name": build_texts(["a", None, "b"] * (rows // 3))})
    return Parsed({"cpu_ops": table}, 4, 8, {"host": "h"})
