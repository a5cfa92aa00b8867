"""Matrix products and convolutions whose names say that they run without tensor cores."""

import numpy as np

from htk.base.columns.types import Floats
from htk.base.core.humanize import pluralize_count
from htk.base.names.kinds import kind_of
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import shorter_activities
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.step_model import StepModel

FINDING = "matrix kernels without tensor cores"
_GAIN = 0.5  # at least twice the rate on every GPU since Volta


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    rows = work.of_families("gemm", "convolution") & work.has_tensor_cores(False)
    advice = _faster_formats(recorded)
    if not rows.any() or not advice or not recorded.program.is_on_gpu:
        return []
    cause = work.cause(
        rows,
        work.take(rows, _GAIN),
        FINDING,
        f"{pluralize_count(work.count(rows), 'kernel')}, "
        f"{recorded.spent(int(work.length[rows].sum()))}",
        f"{advice}; sizes that are multiples of 8",
        "kernel_families",
        shorter_activities("precision", _on_tensor_cores),
    )
    return [cause]


def _on_tensor_cores(model: StepModel) -> Floats:
    acts = model.graph.activities
    plain = np.array([kind_of(name, "kernel").tensor_core is False for name in acts.names])
    chosen = plain[acts.name] & model.facts.family.isin("gemm", "convolution")
    return np.asarray(np.where(chosen, _GAIN, 1.0) * model.lengths(), np.float64)


def _faster_formats(recorded: CauseEvidence) -> str:
    """Return which formats this device computes on its matrix units; nothing where it has none."""
    device = recorded.device
    has = {name: device.has(name) if device else None for name in ("bf16", "tf32", "fp16")}
    if not recorded.program.is_torch:
        formats = [name for name, held in has.items() if held is not False]
        return f"{', '.join(formats)} inputs, where accuracy allows" if formats else ""
    if has["bf16"] is None:
        return (
            "half precision: bf16 autocast (Ampere, MI100 or later), TF32 (Ampere or later), "
            "fp16 autocast with a GradScaler on Volta and Turing"
        )
    ways = []
    if has["bf16"]:
        ways.append("bf16 autocast")
    elif has["fp16"]:
        ways.append("fp16 autocast with a GradScaler (this GPU has no bf16)")
    if has["tf32"]:
        ways.append("TF32: torch.set_float32_matmul_precision('high')")
    return ", or ".join(ways)
