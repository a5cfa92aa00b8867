"""Plans without any trace, held against measured steps of jobs that shard over all ranks."""

from collections.abc import Iterator, Sequence

from bench.scorecard.rows import Row
from bench.scorecard.score import Prediction
from htk.models.decoder import model_flops
from htk.plan.job import PlannedJob
from htk.plan.step import plan

_SIGMA = 0.2
_USUAL_MFU = 0.4


def predictions(rows: Sequence[Row]) -> Iterator[Prediction]:
    """The naive answer is a model FLOPs utilisation of 40 %."""
    for row in rows:
        job = row.job
        if row.pipeline > 1 or job.tensor_parallel > 1 or row.precision != "bf16":
            continue
        if job.strategy == "ddp":  # stand-ins for one replica
            continue
        described = PlannedJob(
            job.decoder,
            job.device,
            job.nodes,
            job.gpus_per_node,
            job.micro_batch,
            job.seq,
            "full" if job.checkpointing else "none",
            strategy=job.strategy,
            kernels="eager",
        )
        flops = model_flops(job.decoder, job.micro_batch, job.seq)
        usual = flops / (_USUAL_MFU * job.device.half_tflops * 1e3)
        yield Prediction(
            "plan", "step", f"{row.source}, {row.family}: {job.micro_batch}×{job.seq}",
            f"{row.source} {row.group}", "plan", usual, row.simulated_ns, usual,
            plan(described).step_ns, _SIGMA,
        )  # fmt: skip
