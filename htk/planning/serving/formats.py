"""Number formats of a server: of its weights, and of the keys and values that it keeps."""

from dataclasses import dataclass

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu


@dataclass(frozen=True)
class WeightFormat:
    weight_bytes: float  # of an element, scales included
    rate: str  # the hardware's format for products, where it has that
    operand_bytes: float = 2.0  # of what is multiplied with weights
    cast_bytes: float = 0.0  # moved to bring an element of that into its format


# Weights of 4 bits have a scale of 16 bits and a zero point for each group of so many.
def _build_grouped_format(size: int) -> WeightFormat:
    return WeightFormat(0.5 + 2.5 / size, "bf16")


WEIGHTS = {
    "bf16": WeightFormat(2, "bf16"),
    "fp16": WeightFormat(2, "bf16"),
    "fp8": WeightFormat(1, "fp8", 1, 3),
    "int8": WeightFormat(1, "bf16"),
    "int4": _build_grouped_format(128),
    "int4-g32": _build_grouped_format(32),
    "mxfp4": WeightFormat(0.5 + 1 / 32, "fp4", 1, 3),
    "nvfp4": WeightFormat(0.5 + 1 / 16, "fp4", 0.5 + 1 / 16, 3),
}
_ALSO = {"awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a16": "int8", "fp4": "nvfp4",
         "w8a8-fp8": "fp8", "bfloat16": "bf16", "float16": "fp16"}  # fmt: skip
KV_CACHES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625}  # bytes


def weight_format(name: str, gpu: Gpu) -> WeightFormat:
    """Return the format of that name; where the GPU has no products in it, weights are brought to
    16 bits as they are read."""
    own = WEIGHTS.get(_ALSO.get(name.lower(), name.lower()))
    if own is None:
        raise UsageError(f"weights in {name!r}: one of {', '.join(WEIGHTS)}")
    if own.rate != "bf16" and not gpu.has(own.rate):
        return WeightFormat(own.weight_bytes, "bf16")
    return own


def measured_format(weights: WeightFormat) -> str:
    """Return the format of the atlas for products with such weights."""
    if weights.rate != "bf16":
        return weights.rate
    by_bytes = {2: "bf16", 1: "int8_weights", 0.5 + 1 / 32: "fp4_weights"}
    return by_bytes.get(weights.weight_bytes, "int4_weights")


def kv_element_bytes(name: str) -> float:
    """Return the bytes of an element of the cache."""
    if name.lower() not in KV_CACHES:
        raise UsageError(f"a KV cache in {name!r}: one of {', '.join(KV_CACHES)}")
    return KV_CACHES[name.lower()]
