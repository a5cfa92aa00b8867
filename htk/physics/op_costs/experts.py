"""Experts of a mixture whose weights no argument shows: their sizes by what the products write.

Arguments: hidden states [t, h], scores [t, experts]. Values: what the operator allocates inside,
and its kernels' names. The router's choice is [t, k]; the first product writes at least t·k rows
of `inner` elements, the second as many of `h`. One of them not being certain, nothing is told.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from htk.physics.op_costs.call import EXPERT_SIZES, Cost, Model, OperatorCall

_T = TypeVar("_T")

# TensorRT-LLM's names say bmm_<written>_<operand><operand>_<summed in>_…, Triton's end in
# …_<written>x<operand>x<weights>_<tile>.
_TENSORRT = re.compile(r"bmm_[^_]+_([^_]+)_Fp32_")
_TENSORRT_TYPE = re.compile(r"(Mx|Nv)?(E2m1|E4m3|Bfloat16|Fp16)")
_TRITON = re.compile(r"_(?:p_)?matmul_ogs_\w*?_(bf16|fp16)x(bf16|fp16)x(mxfp4|mxfp8|bf16|fp16)_")
_GATED = re.compile(r"swi_?glu", re.I)
_BITS = {"E2m1": 4, "E4m3": 8, "Bfloat16": 16, "Fp16": 16, "mxfp4": 4, "mxfp8": 8}
_BITS |= {"bf16": 16, "fp16": 16}
_DTYPE = {"E4m3": "fp8", "E2m1": "fp4", "Bfloat16": "bf16", "Fp16": "fp16"}
_SCALED_BY = {"Mx": 32, "Nv": 16, "mxfp4": 32, "mxfp8": 32}  # elements that share a scale's byte
_FLOATING = {0, 5, 6, 15, 23, 24, 25, 26}  # scalar types; 0: bytes that hold narrow ones


class _Operands(NamedTuple):
    """What a product's kernel multiplies."""

    dtype: str
    weight_bits: int
    weight_bytes: float  # of an element, its share of scales with it


class _Buffer(NamedTuple):
    rows: int
    width: int
    type: int


def _cost_experts(call: OperatorCall) -> Cost:
    states = call.tensor(0)
    scores = call.tensor(1)
    buffers = _list_buffers(call.values[0])
    names = call.values[1]
    tokens = states.shape[-2]
    hidden = states.shape[-1]
    experts = scores.shape[-1]
    chosen = _take_only({b.width for b in buffers if b.rows == tokens and b.width < experts})
    rows = tokens * chosen
    written = [b.width for b in buffers if b.rows >= rows and b.type in _FLOATING]
    inner = _take_only(set(written) - {hidden}) if set(written) != {hidden} else hidden
    operands = _take_only({o for name in names if (o := _parse_operands(name)) is not None})
    if written.count(hidden) < 1 + (inner == hidden):
        raise LookupError(f"{call.name}: no buffer of its second product")
    is_gated = any(_GATED.search(name) for name in names)
    first = 2 * inner if is_gated else inner
    flops = 2 * rows * hidden * (first + inner)
    used = min(experts, rows)
    weights = used * hidden * (first + inner) * operands.weight_bytes
    moved = 2 * states.bytes + scores.bytes + weights
    assumed = "sizes by buffers inside; tokens spread evenly over experts"
    sizes = (tokens, hidden, inner, chosen, experts, operands.weight_bits)
    dims = tuple(zip(EXPERT_SIZES, sizes, strict=True)) if is_gated else ()
    return Cost(flops, round(moved), "moe", operands.dtype, True, assumed=assumed, dims=dims)


def _list_buffers(recorded: list[str]) -> list[_Buffer]:
    """Return the matrices among what was allocated: rows, elements of a row, scalar type."""
    matrices = []
    for text in recorded:
        values = json.loads(text)
        sizes = json.loads(values[0])
        kind = next((int(v) for v in values[1:] if str(v).isdigit()), -1)
        if len(sizes) > 1:
            rows = 1
            for size in sizes[:-1]:
                rows *= size
            matrices.append(_Buffer(rows, sizes[-1], kind))
    return matrices


def _parse_operands(name: str) -> _Operands | None:
    if matched := _TENSORRT.match(name):
        types = _TENSORRT_TYPE.findall(matched[1])
        narrow = min(types, key=lambda pair: _BITS[pair[1]])
        wide = max(types, key=lambda pair: _BITS[pair[1]])
        bits = _BITS[narrow[1]]
        return _Operands(_DTYPE[wide[1]], bits, _element_bytes(narrow[1], narrow[0]))
    if matched := _TRITON.match(name):
        bits = _BITS[matched[3]]
        return _Operands(matched[2], bits, _element_bytes(matched[3], matched[3]))
    return None


def _element_bytes(kind: str, scale: str) -> float:
    return _BITS[kind] / 8 + (1 / _SCALED_BY[scale] if scale in _SCALED_BY else 0)


def _take_only(candidates: Iterable[_T]) -> _T:
    """Return the only candidate; one is certain, several are not."""
    several = list(candidates)
    if len(several) != 1:
        raise LookupError(f"{len(several)} candidates for a size of the experts")
    return several[0]


BY_BUFFERS = ("vllm::moe_forward",)
MODELS: dict[str, Model] = dict.fromkeys(BY_BUFFERS, _cost_experts)
