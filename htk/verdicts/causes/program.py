"""What kind of program was recorded: advice has to fit it."""

import re
from dataclasses import dataclass

import pyarrow as pa

from htk.base.columns.arrow import matching

_TORCH_OPERATOR = re.compile(r"^(aten|autograd|torch|c10d|prims|nccl)::?|^ProfilerStep#")
_TORCH_KERNEL = re.compile(r"\bat::native\b|\bat_cuda_detail\b|\bc10::|^triton_")
_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFxGraph|CompiledFunction")
_OTHERS = re.compile(r"MTIA|Gaudi|HPU|TPU|Ascend|NPU", re.IGNORECASE)  # own ways of launching


@dataclass(frozen=True)
class RecordedProgram:
    """Whether it is of PyTorch, or of JAX; else C++, Fortran or what else there is."""

    is_torch: bool
    is_jax: bool
    is_compiled: bool  # by torch.compile, at least in part

    @classmethod
    def of(cls, op_totals: pa.Table, kernel_totals: pa.Table, ranks: pa.Table) -> "RecordedProgram":
        """Return what names of operators and kernels tell."""
        devices = " ".join(filter(None, ranks["device_name"].to_pylist()))
        operators = matching(op_totals["name"], lambda n: bool(_TORCH_OPERATOR.search(n)))
        kernels = matching(kernel_totals["name"], lambda n: bool(_TORCH_KERNEL.search(n)))
        is_jax = "xplane" in ranks["format"].to_pylist()
        is_torch = bool(operators.any() or kernels.any()) and not _OTHERS.search(devices)
        compiled = matching(op_totals["name"], lambda n: bool(_COMPILED.search(n)))
        return cls(is_torch and not is_jax, is_jax, bool(compiled.any()))

    def advise(self, torch: str, otherwise: str) -> str:
        """Return the advice that fits the program."""
        return torch if self.is_torch else otherwise
