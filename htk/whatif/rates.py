"""What an answer says beyond its time: tokens, model FLOPs utilisation."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.analyses.ops.flops import flops
from htk.base.columns.arrow import read_keys, read_numbers
from htk.base.core.analysis import coverage_of
from htk.base.errors import AnalysisError, UsageError
from htk.base.mappings import NamedTables, ReplacedTables
from htk.physics.training_job import TrainingJob
from htk.whatif.recorded_job import recorded_job
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel

MFU = (
    "MFU: model FLOPs (2 a multiply-add, attention by the pairs that its mask leaves, without "
    "recomputation) over the step and the dense peak of the type of most matrix operations"
)

_MODELLED_PCT = 50  # of the time: work that is known of less says nothing of the whole


@dataclass(frozen=True)
class Rates:
    """Of the recorded step."""

    gpus: int
    tokens: float | None  # of a step, of all ranks
    flops: float | None  # model FLOPs of a step on one GPU
    peak_flops: float | None  # of one GPU, a second
    watts: float | None = None  # a GPU's limit

    def tokens_per_s(self, samples: float, step_ns: int) -> float | None:
        if self.tokens is None:
            return None
        return self.tokens * samples / (step_ns / 1e9)

    def mfu_pct(self, each: float, step_ns: int) -> float | None:
        """`each`: samples of a GPU, over the recorded ones."""
        if self.flops is None or self.peak_flops is None:
            return None
        return 100 * self.flops * each / (self.peak_flops * step_ns / 1e9)


def compute_rates(tables: NamedTables, model: StepModel) -> Rates:
    job = recorded_job(model)
    work, peak = _measure_work(tables, model.graph.step, model.graph.cycle)
    gpu = model.facts.device
    watts = None if gpu is None or gpu.tdp_w is None else float(gpu.tdp_w)
    return Rates(job.ranks or 1, _count_tokens(model, job), work, peak, watts)


def _count_tokens(model: StepModel, job: TrainingJob) -> float | None:
    """Return the tokens of a step, of all ranks: those of a group that shares them count once."""
    seen = read_inputs(model).tokens
    if seen is None or job.replicas is None or job.context is None:
        return None
    return seen * job.context * (job.micro_batches or 1) * job.replicas


def _launched_in(tables: NamedTables, step: int) -> NamedTables:
    """Return tables whose activities are those of a step alone: the work of others need not be
    looked for."""
    links = tables["kernel_links"]
    is_of_step = pa.array(read_keys(links["step"]) == step)
    fewer = {name: tables[name].filter(is_of_step) for name in ("kernels", "kernel_links")}
    return ReplacedTables(tables, fewer)


def _measure_work(
    tables: NamedTables, step: int | None, cycle: int | None
) -> tuple[float | None, float | None]:
    """Model FLOPs of a GPU in the step, and its peak; None: no shapes, or an unknown GPU."""
    of_step = tables if step is None else _launched_in(tables, step)
    try:
        read = (of_step[name] for name in flops.reads)
        per_gpu = flops(*read, per="rank" if step is None else "step")
    except (AnalysisError, UsageError):
        return None, None
    modelled = coverage_of(per_gpu).get("modelled_pct_of_time_launched_here_less_communication")
    if modelled is not None and modelled < _MODELLED_PCT:
        return None, None
    ours = (
        np.ones(per_gpu.num_rows, bool)
        if step is None
        else read_numbers(per_gpu["step"], -1) == step
    )
    if cycle is not None:
        ours &= read_numbers(per_gpu["cycle"], -1) == cycle
    work = read_numbers(per_gpu["model_flops"], np.nan)[ours]
    peak = read_numbers(per_gpu["peak_tflops"], np.nan)[ours]
    if not len(work) or not np.nansum(work) > 0:
        return None, None
    mean = float(np.nanmean(work))
    return mean, None if np.isnan(peak).all() else float(np.nanmean(peak)) * 1e12
