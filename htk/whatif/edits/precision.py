"""Matrix products in another precision, by the rates that were measured on the GPU.

fp8: each product's operands are scaled and cast first (read twice, written once); communication and
all else stay. Between single precision and bf16 everything that moves memory changes by half.
"""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from htk.base.errors import UsageError
from htk.physics.hardware import OF_PEAK, Gpu
from htk.quantities.measures.op_work import in_tf32_by_name
from htk.whatif.edits.batch import SHORTEST_NS, grows
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.parallel import smaller
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescaled

NAME = "precision"
HELP = "Type of matrix products: bf16, fp8, fp32 (as TF32 where the GPU has it). Low confidence."

_BYTES = {"fp8": 2, "bf16": 2, "fp32": 4}  # of what is stored between products
_VECTORS = re.compile(r"sgemm(?!.*tf32)|simt", re.I)
_SCALED = 5  # bytes moved to scale and cast an element: 2 for its amax, 2 read, 1 written
_TYPES = (
    ("fp8", re.compile(r"float8|e4m3|e5m2", re.I)),
    ("bf16", re.compile(r"bf16|bfloat16|half|fp16|_hhs_|h884|s16816", re.I)),
    ("fp32", re.compile(r"\bfloat\b|tf32|sgemm|s1688gemm|fp32", re.I)),
)


def apply(model: StepModel, value: str) -> StepModel:
    if value not in _BYTES:
        raise UsageError(f"{NAME} {value!r}: one of {', '.join(_BYTES)}")
    now = _recorded(model)
    if now is None:
        raise UsageError(
            f"{NAME}: neither types of operators nor kernel names tell the present one"
        )
    if now == value:
        return model.with_assumption(f"matrix products are {value} already")
    gpu = model.device
    if gpu is None:
        raise UsageError(f"{NAME}: the catalogue has no rates for {model.device_name!r}")
    if value == "bf16" and not gpu.has("bf16"):
        raise UsageError(f"{NAME}: {gpu.name} has no bf16 matrix products")
    exact = now == "fp32" and not _in_tf32(model)  # computed by vector units, or unknown ones
    ratio = (_vectors(gpu) if exact else _rate(gpu, now)) / _rate(gpu, value)
    faster_peak = _peak(gpu, value, False) / _peak(gpu, now, exact)
    gemm = model.facts.family.isin("gemm")
    length = model.lengths().astype(np.float64)
    floor = np.minimum(length, SHORTEST_NS)
    new = floor + (length - floor) * ratio
    if value == "fp8":
        new += _casts(model, gpu)
    changed = model.with_lengths(gemm, new)
    moved = _BYTES[value] / _BYTES[now]
    if moved != 1:
        rest = (grows(model) | _optimizer(model)) & ~gemm
        changed = changed.with_lengths(rest, floor + (length - floor) * moved)
        comm = rescaled(changed, changed.is_comm, moved)
        changed = changed.with_lengths(changed.is_comm, comm)
        changed = replace(changed, facts=smaller(changed.facts, changed.is_comm, 1 / moved))
    return (
        replace(changed, peak=model.peak * faster_peak, low_confidence=True)
        .with_uncertainty("compute", 0.15)
        .with_assumption(
            f"matrix products in {value} in place of {now}, {1 / ratio:.2f} times as fast by rates "
            f"measured on {gpu.name}; attention as it was",
            *(("casts are kernels of their own; fused into others they would cost less",))
            * (value == "fp8"),
        )
    )


def _recorded(model: StepModel) -> str | None:
    """Return the type of most time in matrix products."""
    acts, time_by_type = model.graph.activities, Counter[str]()
    for k in np.flatnonzero([f == "gemm" for f in model.facts.family]).tolist():  # of one step
        text = f"{model.facts.types[k] or ''} {acts.names[int(acts.name[k])]}"
        dtype = next((name for name, rule in _TYPES if rule.search(text)), None)
        if dtype:
            time_by_type[dtype] += int(acts.length[k])
    return time_by_type.most_common(1)[0][0] if time_by_type else None


def _rate(gpu: Gpu, name: str) -> float:
    """Achievable, in 1e12 operations a second."""
    rate = gpu.achievable_tflops(name)
    if rate is None:
        raise UsageError(f"{NAME}: {gpu.name} has no {name} matrix products")
    return rate


def _in_tf32(model: StepModel) -> bool:
    """Return whether products of single precision run on matrix units, as their names say."""
    acts = model.graph.activities
    gemm = model.facts.family.isin("gemm")
    names = {acts.names[code] for code in acts.name[gemm].tolist()}
    return not any(_VECTORS.search(name) for name in names) or any(map(in_tf32_by_name, names))


def _vectors(gpu: Gpu) -> float:
    return OF_PEAK * _peak(gpu, "fp32", True)


def _peak(gpu: Gpu, name: str, exact: bool) -> float:
    """Return the dense peak that a utilisation is of, in 1e12 operations a second."""
    peaks = {"fp8": gpu.fp8_tflops, "bf16": gpu.half_tflops, "fp32": gpu.tf32_tflops}
    peak = gpu.fp32_tflops if exact else peaks[name] or gpu.fp32_tflops
    return peak or gpu.half_tflops


def _casts(model: StepModel, gpu: Gpu) -> NDArray[np.float64]:
    """Time to cast the operands of each product; 0 where its shapes are not known."""
    elements = model.facts.dims.mapped(lambda d: _elements(d) if d else 0, np.float64)
    return elements * _SCALED / gpu.achievable_memory_gbps


def _elements(dims: str) -> int:
    shapes = [shape for shape in operator_shapes(dims) if len(shape) >= 2]
    return sum(int(np.prod(s)) for s in shapes[-2:] if all(isinstance(n, int) for n in s))


def _optimizer(model: StepModel) -> NDArray[np.bool_]:
    return model.facts.family.isin("optimizer")
