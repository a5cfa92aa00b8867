"""One call of an operator as a profiler records it, and what the call costs.

Shapes and values come as compact JSON; they are parsed, never evaluated.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Shape = tuple[int, ...]

# Element types as the profiler writes them: bytes, and the name that peaks go by.
TYPES = {
    "c10::BFloat16": (2, "bf16"),
    "c10::Half": (2, "fp16"),
    "float": (4, "fp32"),
    "double": (8, "fp64"),
    "c10::Float8_e4m3fn": (1, "fp8"),
    "c10::Float8_e4m3fnuz": (1, "fp8"),
    "c10::Float8_e5m2": (1, "fp8"),
    "c10::Float8_e5m2fnuz": (1, "fp8"),
    "c10::Float8_e8m0fnu": (1, "fp8"),
    "c10::Float4_e2m1fn_x2": (1, "fp4"),  # two of them
    "signed char": (1, "int8"),
    "unsigned char": (1, "int8"),
    "char": (1, "int8"),
    "bool": (1, "bool"),
    "short": (2, "int16"),
    "short int": (2, "int16"),
    "int": (4, "int32"),
    "long": (8, "int64"),
    "long int": (8, "int64"),
    "c10::complex<float>": (8, "complex64"),
    "c10::complex<double>": (16, "complex128"),
}
FALLBACK = "c10::BFloat16"  # of tensors in lists, whose type is not recorded
# Of gated experts: `topk` take each token, through weights of so many bits.
EXPERT_SIZES = ("tokens", "hidden", "ffn", "topk", "experts", "weight_bits")
_FLOATING = ("bf16", "fp16", "fp32", "fp64", "fp8", "fp4", "complex64", "complex128")


class Unrecorded(LookupError):
    """A cost depends on what was not recorded; the text says what."""


@dataclass(frozen=True)
class Tensor:
    shape: Shape
    type: str

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def element(self) -> int:
        return TYPES[self.type][0]

    @property
    def bytes(self) -> int:
        return self.count * self.element


@dataclass(frozen=True)
class Cost:
    """The work of one call. Every tensor is moved once, as with a perfect cache."""

    flops: int
    bytes: int
    family: str
    dtype: str | None = None  # whose peak counts
    matrix: bool = False  # on tensor (matrix) cores
    model_flops: int | None = None  # where the kernel does more than the model asks for
    assumed: str | None = None  # what shapes alone do not tell
    dims: tuple[tuple[str, int], ...] = ()  # sizes of products, attention, …

    @property
    def of_model(self) -> int:
        return self.flops if self.model_flops is None else self.model_flops


@dataclass(frozen=True)
class OperatorCall:
    name: str
    arguments: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    values: tuple[Any, ...]
    guessed: bool = field(default=False)  # some element type was not recorded

    @property
    def tensors(self) -> list[Tensor]:
        return [a for a in self.arguments if isinstance(a, Tensor)]

    def tensor(self, position: int) -> Tensor:
        argument = self.arguments[position]
        if not isinstance(argument, Tensor):
            raise LookupError(f"{self.name} has no tensor at {position}")
        return argument

    def listed(self, position: int) -> tuple[Tensor, ...]:
        argument = self.arguments[position]
        if not isinstance(argument, tuple) or not argument:
            raise LookupError(f"{self.name} has no tensors at {position}")
        return argument

    def maybe(self, position: int) -> Tensor | None:
        argument = self.arguments[position] if position < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None

    def value(self, position: int, default: Any = None) -> Any:
        """Return the recorded value of an argument; a place before the first has none."""
        recorded = self.values[position] if 0 <= position < len(self.values) else None
        return default if recorded is None else recorded

    def numbers(self, position: int, length: int, default: int) -> Shape:
        """Return a list of integers such as strides; one is repeated."""
        recorded = self.value(position)
        if isinstance(recorded, int) and not isinstance(recorded, bool):
            recorded = [recorded]
        if not isinstance(recorded, list) or not recorded:
            return (default,) * length
        listed = tuple(int(n) for n in recorded)
        return listed * length if len(listed) == 1 else listed


Model = Callable[[OperatorCall], Cost]


def read_call(
    name: str, dims: str, types: str | None, values: str | None, unknown: str
) -> OperatorCall | None:
    """Return the call behind recorded texts; `unknown` is the type of tensors without one."""
    shapes = _parse_json(dims)
    kinds = _parse_json(types or "[]")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return None
    kinds = [*kinds, *[""] * (len(shapes) - len(kinds))]
    arguments = tuple(_build_argument(s, k, unknown) for s, k in zip(shapes, kinds, strict=False))
    listed = _parse_json(values or "[]")
    plain = tuple(_parse_value(v) for v in listed) if isinstance(listed, list) else ()
    guessed = any(isinstance(a, tuple) and a for a in arguments)
    return OperatorCall(name, arguments, plain, guessed)


def dtype_of(tensors: Sequence[Tensor]) -> str:
    """The type that a result of these would have: floating before integer, wide before narrow."""
    shaped = [t for t in tensors if t.shape] or list(tensors)
    best = max(shaped, key=lambda t: (TYPES[t.type][1] in _FLOATING, t.element))
    return best.type


def label_type(type_name: str) -> str:
    return TYPES[type_name][1]


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))


def _build_argument(shape: Any, kind: Any, unknown: str) -> Tensor | tuple[Tensor, ...] | None:
    if not isinstance(shape, list):
        return None
    if kind == "TensorList":
        return tuple(
            Tensor(tuple(s), unknown) for s in shape if isinstance(s, list) and _is_shape(s)
        )
    return Tensor(tuple(shape), kind) if kind in TYPES and _is_shape(shape) else None


def _is_shape(shape: list[Any]) -> bool:
    return all(isinstance(n, int) and n >= 0 for n in shape)


@lru_cache(maxsize=50_000)
def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _parse_value(value: Any) -> Any:
    """Profilers write values as texts, Python's way: 'True', '[1, 1]', '0.5'."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("True", "False"):
        return text == "True"
    if text in ("", "None"):
        return None
    parsed = _parse_json(text.replace("True", "true").replace("False", "false"))
    if parsed is not None:
        return parsed
    try:
        return float(text)  # '0.' is no JSON
    except ValueError:
        return text
