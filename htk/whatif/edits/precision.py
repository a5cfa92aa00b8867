"""Matrix products in another precision, by the rates that were measured on the GPU.

fp8: each product's operands are scaled and cast first (read twice, written once); communication and
all else stay. Between single precision and 16 bits everything that moves memory changes by half; of
a step whose weights are cast for its products (autocast), what works on single precision already
stays, and casts go. The optimizer works on single precision in either.

fp32 is computed by vector units, as PyTorch does unless it is told otherwise, and tf32 by matrix
units. Where products of single precision ran in TF32 beside those in 16 bits, fp32 means that.
"""

import math
import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu
from htk.whatif.edits.batch import SHORTEST_NS, mark_growing
from htk.whatif.host_cost import remove_launches
from htk.whatif.number_format import names_tf32, recorded_format
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.parallel import shrink_collectives
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "precision"
HELP = (
    "Type of matrix products: bf16, fp16, fp8, tf32, or fp32 (by vector units, unless the "
    "recording has such products in TF32). Low confidence."
)

# Bytes of what is stored between products.
_BYTES = {"fp8": 2, "bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
_SCALED = 5  # bytes moved to scale and cast an element: 2 for its amax, 2 read, 1 written
_HALF_TYPES = re.compile(r"BFloat16|Half")
_SINGLE_TYPE = re.compile(r"\bfloat\b")
# Measured on an H100: products of a step reached 49 of the 67 TFLOP/s of its vector units, and
# attention in single precision, for which there is no flash kernel, took six times as long.
_OF_VECTORS = 0.73
_IN_STEP = 0.84  # of the rate of the fastest product alone, which the catalogue has
_ATTENTION = 6.0


def apply(model: StepModel, value: str) -> StepModel:
    if value not in _BYTES:
        raise UsageError(f"{NAME} {value!r}: one of {', '.join(_BYTES)}")
    now = recorded_format(model)
    if now is None:
        raise UsageError(
            f"{NAME}: neither types of operators nor kernel names tell the present one"
        )
    gpu = model.device
    if gpu is None:
        raise UsageError(f"{NAME}: the catalogue has no rates for {model.device_name!r}")
    wanted, words = _parse_format(model, value, now)
    if now == wanted:
        return model.with_assumption(f"matrix products are {wanted} already")
    ratio = _find_rate(gpu, now) / _find_rate(gpu, wanted)
    gemm = model.facts.family.isin("gemm")
    length = model.lengths().astype(np.float64)
    floor = np.minimum(length, SHORTEST_NS)
    new = floor + (length - floor) * ratio
    if value == "fp8":
        new += _compute_cast_times(model, gpu)
    if wanted == "fp32":  # vector units are busy whatever the size of a product
        by_work = _count_operations(model) / (1e3 * _IN_STEP * _find_rate(gpu, wanted))
        new = np.where(by_work > 0, floor + by_work, new)
    changed = model.with_lengths(gemm, new)
    moved = _BYTES[wanted] / _BYTES[now]
    convolution = model.facts.family.isin("convolution")
    if moved != 1 and convolution.any():
        slower = _find_rate(gpu, _of_convolutions(gpu, now)) / _find_rate(
            gpu, _of_convolutions(gpu, wanted)
        )
        changed = changed.with_lengths(convolution, floor + (length - floor) * slower)
    if moved != 1:
        changed = _with_elements(changed, moved)
        attention = model.facts.family.isin("attention")
        changed = changed.with_lengths(attention, length * _ATTENTION ** (1 if moved > 1 else -1))
        words.append(f"attention {_ATTENTION:g} times as {'slow' if moved > 1 else 'fast'}")
    return (
        replace(
            changed,
            number_format=wanted,
            peak=model.peak * _find_peak(gpu, wanted) / _find_peak(gpu, now),
            low_confidence=True,
        )
        .with_uncertainty("compute", 0.15 if moved == 1 else 0.25)
        .with_assumption(
            f"matrix products in {wanted} in place of {now}, {1 / ratio:.2f} times as fast by "
            f"rates measured on {gpu.name}",
            *words,
            *(("casts are kernels of their own; fused into others they would cost less",))
            * (value == "fp8"),
        )
    )


def _parse_format(model: StepModel, value: str, now: str) -> tuple[str, list[str]]:
    """Return the format that is asked for, and how that was read."""
    if value != "fp32" or now == "fp32":
        return value, []
    if now != "tf32" and names_tf32(model):
        return "tf32", ["fp32 as TF32, in which the recording has such products"]
    return "fp32", ["fp32 by vector units, PyTorch's default; in TF32 it would be --precision tf32"]


def _with_elements(model: StepModel, moved: float) -> StepModel:
    """Return the model whose elements take so many times the bytes, where they are of that type."""
    length = model.lengths().astype(np.float64)
    floor = np.minimum(length, SHORTEST_NS)
    half = model.facts.types.where(_HALF_TYPES.search)
    single = model.facts.types.where(_SINGLE_TYPE.search)
    casts = half & single & model.facts.op.isin("aten::copy_")
    matrix = model.facts.family.isin("gemm", "convolution", "attention")
    rest = mark_growing(model) & ~matrix
    if moved > 1 and casts.any():  # autocast
        rest &= half & ~casts
        model = remove_launches(model, casts)
    changed = model.with_lengths(rest, floor + (length - floor) * moved)
    comm = rescale_transfers(changed, changed.is_comm, moved)
    changed = changed.with_lengths(changed.is_comm, comm)
    return replace(changed, facts=shrink_collectives(changed.facts, changed.is_comm, 1 / moved))


def _of_convolutions(gpu: Gpu, name: str) -> str:
    """Return the format of convolutions: PyTorch lets those in single precision run in TF32."""
    return "tf32" if name == "fp32" and gpu.has("tf32") else name


def _find_rate(gpu: Gpu, name: str) -> float:
    """Return the rate of the fastest products alone, in 1e12 operations a second."""
    if name == "fp32":
        return _OF_VECTORS / _IN_STEP * _find_peak(gpu, name)
    if name == "tf32" and not gpu.has("tf32"):
        raise UsageError(f"{NAME}: {gpu.name} has no tf32 matrix products")
    rate = gpu.achievable_tflops("bf16" if name == "fp16" else name)
    if rate is None:
        raise UsageError(f"{NAME}: {gpu.name} has no {name} matrix products")
    return rate


def _find_peak(gpu: Gpu, name: str) -> float:
    """Return the dense peak that a utilisation is of, in 1e12 operations a second."""
    single = gpu.fp32_matrix_tflops or gpu.fp32_tflops
    peaks = {"fp8": gpu.fp8_tflops, "tf32": gpu.tf32_tflops, "fp32": single}
    return peaks.get(name) or gpu.half_tflops


def _compute_cast_times(model: StepModel, gpu: Gpu) -> NDArray[np.float64]:
    """Time to cast the operands of each product; 0 where its shapes are not known."""
    elements = model.facts.dims.mapped(lambda d: _count_elements(d) if d else 0, np.float64)
    return elements * _SCALED / gpu.achievable_memory_gbps


def _count_operations(model: StepModel) -> NDArray[np.float64]:
    """Operations of each product; 0 where its shapes are not known."""

    def of_shapes(dims: str | None) -> float:
        shapes = [shape for shape in operator_shapes(dims or "") if len(shape) >= 2][-2:]
        is_product = len(shapes) == 2 and shapes[0][-1] == shapes[1][-2]
        return 2.0 * math.prod(shapes[0]) * shapes[1][-1] if is_product else 0.0

    return model.facts.dims.mapped(of_shapes, np.float64)


def _count_elements(dims: str) -> int:
    shapes = [shape for shape in operator_shapes(dims) if len(shape) >= 2]
    return sum(int(np.prod(s)) for s in shapes[-2:] if all(isinstance(n, int) for n in s))
