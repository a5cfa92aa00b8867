"""What the shapes of operators tell of a collective that says nothing itself."""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from htk.base.names.collectives import dtype_of_cpp


@dataclass(frozen=True)
class Shape:
    into: int = -1
    out: int = -1
    dtype: str | None = None


# c10d operators whose first two tensors are output and input.
_OUT_IN = re.compile(r"^c10d::_?(allgather_base|reduce_scatter_base|alltoall_base|allgather_into)")
_AS_MUCH_OUT = ("all_reduce", "broadcast", "reduce")


def from_shapes(kind: str, op: str | None, described: list[tuple[str | None, str | None]]) -> Shape:
    """Elements in and out, from the shapes of the range, the record and the c10d operator."""
    (range_dims, range_types), (record_dims, record_types), (op_dims, op_types) = described
    if op_dims and op and _OUT_IN.match(op):
        sizes = _count_elements(op_dims)
        if len(sizes) > 1 and min(sizes[:2]) >= 0:
            return Shape(sizes[1], sizes[0], _first_type(op_types))
    shaped = ((range_dims, range_types), (record_dims, record_types), (op_dims, op_types))
    for dims, types in shaped:
        sizes = _count_elements(dims) if dims else ()
        if sizes and sizes[0] >= 0:
            out = sizes[0] if kind in _AS_MUCH_OUT else -1
            return Shape(sizes[0], out, _first_type(types))
    return Shape()


@lru_cache(maxsize=10_000)
def _count_elements(dims: str) -> tuple[int, ...]:
    """Elements of each argument, from its shape or list of shapes; -1: it is no tensor."""
    try:
        shapes = json.loads(dims)
    except (ValueError, RecursionError):
        return ()
    return tuple(_count_shape(s) for s in shapes) if isinstance(shapes, list) else ()


def _count_shape(shape: Any) -> int:
    if not isinstance(shape, list) or not shape:
        return -1
    if all(isinstance(s, list) for s in shape):
        return sum(max(_count_shape(s), 0) for s in shape)
    if all(isinstance(s, int) for s in shape):
        product = 1
        for size in shape:
            product *= size
        return product if 0 <= product < 2**62 else -1
    return -1


@lru_cache(maxsize=1000)
def _first_type(types: str | None) -> str | None:
    try:
        listed = json.loads(types or "[]")
    except (ValueError, RecursionError):
        return None
    first = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(first, str) or first in ("", "TensorList", "Scalar", "ScalarList"):
        return None
    return dtype_of_cpp(first)
