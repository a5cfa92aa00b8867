"""What an answer says beyond its time: tokens, model FLOPs utilisation."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.analyses.ops.flops import flops
from htk.base.columns.arrow import numbers
from htk.base.errors import AnalysisError, UsageError
from htk.quantities.graph.left_out import left_out_of
from htk.whatif.shapes import inputs
from htk.whatif.step_model import StepModel

MFU = (
    "MFU: model FLOPs (2 a multiply-add, attention by the pairs that its mask leaves, without "
    "recomputation) over the step and the dense peak of the type of most matrix operations"
)

_LOSSES = ("aten::nll_loss", "aten::nll_loss_forward", "aten::cross_entropy_loss")


@dataclass(frozen=True)
class Rates:
    """Of the recorded step."""

    gpus: int
    tokens: int | None  # of a step on one rank
    flops: float | None  # model FLOPs of a step on one GPU
    peak_flops: float | None  # of one GPU, a second
    watts: float | None = None  # a GPU's limit

    def tokens_per_s(self, samples: float, step_ns: int) -> float | None:
        if self.tokens is None:
            return None
        return self.tokens * self.gpus * samples / (step_ns / 1e9)

    def mfu_pct(self, each: float, step_ns: int) -> float | None:
        """`each`: samples of a GPU, over the recorded ones."""
        if self.flops is None or self.peak_flops is None:
            return None
        return 100 * self.flops * each / (self.peak_flops * step_ns / 1e9)


def rates(tables: Mapping[str, pa.Table], model: StepModel) -> Rates:
    largest_group = int(model.facts.group_size.max(initial=1))
    world_size = int(numbers(tables["ranks"]["world_size"], 0).max(initial=0))
    left_out = left_out_of(tables)
    recorded = len(model.graph.ranks) if left_out is None else left_out.ranks
    gpus = max(largest_group, world_size, recorded)
    work, peak = _work(tables, model.graph.step, model.graph.cycle)
    gpu = model.facts.device
    watts = None if gpu is None or gpu.tdp_w is None else float(gpu.tdp_w)
    tokens = inputs(model).tokens
    tokens_per_step = None if tokens is None else tokens * _micro_batches(model)
    return Rates(gpus, tokens_per_step, work, peak, watts)


def _micro_batches(model: StepModel) -> int:
    """Return how often a rank reckons its loss in the step."""
    of_rank = model.graph.activities.rank == model.graph.ranks[0]
    rows = model.facts.op_row[of_rank]
    names = np.array([op or "" for op in model.facts.op])[of_rank]
    counts = [len(np.unique(rows[names == name])) for name in _LOSSES]
    return max([*counts, 1])


def _work(
    tables: Mapping[str, pa.Table], step: int | None, cycle: int | None
) -> tuple[float | None, float | None]:
    """Model FLOPs of a GPU in the step, and its peak; None: no shapes, or an unknown GPU."""
    try:
        read = (tables[name] for name in flops.reads)
        per_gpu = flops.function(*read, per="rank" if step is None else "step")
    except (AnalysisError, UsageError):
        return None, None
    ours = np.ones(per_gpu.num_rows, bool) if step is None else numbers(per_gpu["step"], -1) == step
    if cycle is not None:
        ours &= numbers(per_gpu["cycle"], -1) == cycle
    work = numbers(per_gpu["model_flops"], np.nan)[ours]
    peak = numbers(per_gpu["peak_tflops"], np.nan)[ours]
    if not len(work) or not np.nansum(work) > 0:
        return None, None
    mean = float(np.nanmean(work))
    return mean, None if np.isnan(peak).all() else float(np.nanmean(peak)) * 1e12
