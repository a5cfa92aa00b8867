"""Number formats of training: what products run in, what is kept, and what casts move."""

from dataclasses import dataclass

from htk.base.errors import UsageError


@dataclass(frozen=True)
class Precision:
    """One recipe. Bytes are of an element."""

    rate: str  # the hardware's format for products with weights
    operand_bytes: float  # of what goes into them
    parameter_bytes: float  # as kept and gathered
    gradient_bytes: float
    saved_bytes: float  # of a product's input, as kept for the backward pass
    cast_bytes: float  # moved to quantise an element, both ways that products read it
    element_bytes: int = 2  # of activations between products


# Per tensor: read, two layouts written. Per block the same with scales (DeepSeek-V3's recipe and
# MXFP8); where scales follow the data another pass reads it. FP4: read, two layouts of half a byte
# and scales, and the random transform before the weights' gradients.
RECIPES = {
    "bf16": Precision("bf16", 2, 2, 2, 2, 0),
    "fp16": Precision("bf16", 2, 2, 2, 2, 0),
    "fp32": Precision("fp32", 4, 4, 4, 4, 0, 4),
    "tf32": Precision("fp32", 4, 4, 4, 4, 0, 4),
    "fp8": Precision("fp8", 1, 2, 2, 1, 6),
    "fp8-block": Precision("fp8", 1, 2, 2, 1, 6),
    "mxfp8": Precision("fp8", 1, 2, 2, 1, 4),
    "nvfp4": Precision("fp4", 0.5625, 2, 2, 0.5625, 7),
}
# What recipes are called elsewhere.
_ALIASES = {
    "fp8-cs": "fp8", "fp8-ds": "fp8", "fp8-tensor": "fp8", "float8": "fp8", "fp8-mx": "mxfp8",
    "fp8-sc": "fp8-block", "fp8-blockwise": "fp8-block", "fp4": "nvfp4", "float32": "fp32",
    "float16": "fp16", "bfloat16": "bf16",
}  # fmt: skip
PRECISIONS = (*RECIPES, *_ALIASES)


def precision_of(name: str) -> Precision:
    key = name.lower()
    recipe = RECIPES.get(_ALIASES.get(key, key))
    if recipe is None:
        raise UsageError(f"precision {name!r}: one of {', '.join(RECIPES)}")
    return recipe


def matrix_format(name: str) -> str | None:
    """Return the format that matrix units must have for a recipe; None: any GPU computes in it."""
    key = _ALIASES.get(name.lower(), name.lower())
    rate = key if key == "fp16" else precision_of(name).rate
    return None if rate == "fp32" else rate
