"""What kind of program was recorded: advice has to fit it."""

import re
from dataclasses import dataclass

import pyarrow as pa

from htk.base.columns.arrow import match_texts

_TORCH_OPERATOR = re.compile(r"^(aten|autograd|torch|c10d|prims|nccl)::?|^ProfilerStep#")
_TORCH_KERNEL = re.compile(r"\bat::native\b|\bat_cuda_detail\b|\bc10::|^triton_")
_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFxGraph|CompiledFunction")
_CALL_OF_A_GPU = re.compile(r"(?:cuda|cu|hip)[A-Z]")
_OTHERS = re.compile(r"MTIA|Gaudi|HPU|TPU|Ascend|NPU", re.IGNORECASE)  # where no call tells

TABLES = ("op_totals", "kernel_totals", "launch_totals", "ranks")  # that tell a program
FUSED_ELSEWHERE = "one kernel of the vendor's libraries, or of its compiler"  # than by PyTorch


@dataclass(frozen=True)
class RecordedProgram:
    """Whether it is of PyTorch on GPUs, or of JAX; else C++, Fortran, PyTorch on accelerators with
    ways of their own, or what else there is."""

    is_torch: bool
    is_jax: bool
    is_compiled: bool  # by torch.compile, at least in part
    is_on_gpu: bool  # of CUDA or ROCm: others have not their graphs, tools and tensor cores

    @classmethod
    def from_totals(
        cls,
        op_totals: pa.Table,
        kernel_totals: pa.Table,
        launch_totals: pa.Table,
        ranks: pa.Table,
    ) -> "RecordedProgram":
        """Return what names of operators, kernels, calls, devices and formats tell."""
        formats = ranks["format"].to_pylist()
        devices = " ".join(filter(None, [*ranks["device_name"].to_pylist(), *formats]))
        calls = match_texts(launch_totals["name"], lambda n: bool(_CALL_OF_A_GPU.match(n)))
        is_on_gpu = bool(calls.any()) or not (len(calls) or _OTHERS.search(devices))
        operators = match_texts(op_totals["name"], lambda n: bool(_TORCH_OPERATOR.search(n)))
        kernels = match_texts(kernel_totals["name"], lambda n: bool(_TORCH_KERNEL.search(n)))
        is_jax = "xplane" in formats
        is_torch = bool(operators.any() or kernels.any()) and is_on_gpu and not is_jax
        compiled = match_texts(op_totals["name"], lambda n: bool(_COMPILED.search(n)))
        return cls(is_torch, is_jax, bool(compiled.any()), is_on_gpu)

    def advise(self, torch: str, otherwise: str) -> str:
        """Return the advice that fits the program."""
        return torch if self.is_torch else otherwise

    def name_tools(self, tools: str) -> str:
        """Return the tools of GPUs, as they are appended to advice; nothing on what has others."""
        return f" ({tools})" if self.is_on_gpu else ""
