"""What an operator was called with, as the profiler writes it: shapes, strides, types, values."""

import json
from dataclasses import dataclass
from typing import NamedTuple

Shape = tuple[int, ...]


class TypedTensor(NamedTuple):
    """One of another type than the rest."""

    shape: Shape
    kind: str


class Tensors(NamedTuple):
    """A list of them."""

    shapes: tuple[Shape, ...]


Argument = Shape | TypedTensor | Tensors | str | None  # a value as text; None: not given


@dataclass(frozen=True)
class OperatorInputs:
    """Each as JSON."""

    inputs: str
    types: str
    strides: str
    dims: str

    def __str__(self) -> str:
        return (
            f'"Concrete Inputs": {self.inputs}, "Input type": {self.types},'
            f' "Input Strides": {self.strides}, "Input Dims": {self.dims}'
        )


def build_operator_inputs(kind: str, *values: Argument) -> OperatorInputs:
    """Tensors are of that kind, and contiguous."""
    columns = zip(*(_spell_argument(kind, value) for value in values), strict=True)
    return OperatorInputs(*(json.dumps(list(column)) for column in columns))


def _spell_argument(kind: str, what: Argument) -> tuple[object, object, object, object]:
    """Value, type, strides and shape of one argument."""
    if what is None:
        return "", "", [], []
    if isinstance(what, str):
        return what, "ScalarList" if what.startswith("[") else "Scalar", [], []
    if isinstance(what, Tensors):
        return "", "TensorList", [_compute_strides(s) for s in what.shapes], what.shapes
    shape, kind = what if isinstance(what, TypedTensor) else (what, kind)
    return "", kind, _compute_strides(shape), shape


def _compute_strides(shape: Shape) -> list[int]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]
