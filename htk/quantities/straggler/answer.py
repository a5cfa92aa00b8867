"""What the answers on stragglers share: the job, whether its replay holds, and GPUs."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.core.analysis import with_coverage
from htk.base.errors import AnalysisError
from htk.quantities.straggler.fidelity import Fidelity, measure_fidelity
from htk.quantities.straggler.job import Job
from htk.quantities.straggler.streamed import job_of_any_size

_HOUR_NS = 3_600_000_000_000
_SIZES = ("dp_size", "pp_size", "tp_size")


@dataclass(frozen=True)
class Question:
    """A job whose replay holds."""

    job: Job
    fidelity: Fidelity
    gpus: int
    gpus_from: str
    missing: dict[str, int]  # replicas that the layout has and no row names

    @classmethod
    def from_operations(
        cls, operations: pa.Table, layouts: pa.Table, gpus: int | None = None
    ) -> "Question":
        """Arrange the rows and hold the replay against them; a replay that is off is refused."""
        _refuse_several_jobs(layouts)
        job = job_of_any_size(operations)
        held = measure_fidelity(job)
        if held.verdict.startswith("refused"):
            raise AnalysisError(
                f"{held.verdict}: the rows do not explain the step times; log every forward, "
                "backward, send, receive, reduction and optimizer of each worker, on one clock"
            )
        return cls(job, held, *_count_gpus(job, layouts, gpus), _count_missing(job, layouts))

    def covered(self, table: pa.Table) -> pa.Table:
        """Return the answer, with what it rests on."""
        job = self.job
        return with_coverage(
            table,
            **job.facts,
            **self.missing,
            dp_size=len(job.replicas),
            pp_size=len(job.stages),
            gpus=self.gpus,
            gpus_from=self.gpus_from,
            replay=self.fidelity.figures,
        )

    def gpu_hours(self, ns: float) -> float:
        """GPU hours that a time of the whole job is worth."""
        return ns * self.gpus / _HOUR_NS


def _refuse_several_jobs(layouts: pa.Table) -> None:
    """Refuse rows of jobs that are laid out differently: their workers would become one job's."""
    sizes = np.array([read_numbers(layouts[name], 0) for name in _SIZES]).T
    distinct = np.unique(sizes, axis=0)
    if len(distinct) > 1:
        written = " and ".join(f"dp {d} × pp {p} × tp {t}" for d, p, t in distinct[:3].tolist())
        raise AnalysisError(
            f"these are the files of {len(distinct)} jobs ({written}): name those of one job"
        )


def _count_gpus(job: Job, layouts: pa.Table, gpus: int | None) -> tuple[int, str]:
    """GPUs of the job: given, of its layout, or one for each worker that logged."""
    if gpus is not None:
        return gpus, "option"
    worlds = read_numbers(layouts["world_size"], 0)
    if len(worlds) == 1 and worlds[0] >= job.rank.size:
        return int(worlds[0]), "layout"
    return int(np.prod(job.rank.shape)), "workers that logged"


def _count_missing(job: Job, layouts: pa.Table) -> dict[str, int]:
    """Replicas without rows: what they are slow in is not seen."""
    sizes = read_numbers(layouts["dp_size"], 0)
    fewer = len(sizes) == 1 and int(sizes[0]) > len(job.replicas)
    return {"dp_ranks_missing": int(sizes[0]) - len(job.replicas)} if fewer else {}
