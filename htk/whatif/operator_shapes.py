"""Shapes of an operator's inputs, as traces write them."""

import json
from functools import lru_cache

Shape = tuple[int, ...]
_LONGEST = 1 << 40  # what a dimension may be


@lru_cache(maxsize=16384)
def operator_shapes(dims: str | None) -> tuple[Shape, ...]:
    """Return the shape of each input, in their order; empty for scalars and lists of tensors."""
    try:
        listed = json.loads(dims or "[]")
    except ValueError:
        return ()
    return tuple(_parse_shape(sizes) for sizes in listed) if isinstance(listed, list) else ()


def list_matrices(dims: str | None) -> list[Shape]:
    """Return the shapes with two dimensions."""
    return [shape for shape in operator_shapes(dims) if len(shape) == 2]


@lru_cache(maxsize=4096)
def product_sizes(dims: str) -> tuple[int, int, int] | None:
    """Return the rows, columns and inner dimension of a product of two matrices."""
    shapes = list_matrices(dims)
    if len(shapes) < 2:
        return None
    (m, k), (other, n) = shapes[-2:]
    return (m, n, k) if k == other and min(m, n, k) > 0 and max(m, n, k) < _LONGEST else None


def _parse_shape(listed: object) -> Shape:
    if not isinstance(listed, list) or not all(isinstance(size, int) for size in listed):
        return ()
    return tuple(listed)
