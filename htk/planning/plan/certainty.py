"""How far a plan may miss: by what of it was ever held against a measured job, and what was not.

Each trait of a job (its hardware, number format, kinds of parallelism, kind of model) adds to the
variance of the step's logarithm: as much as measured jobs with it missed by, or where none had it,
as much as is assumed of what was never checked. `checked.toml` beside this module holds what the
scorecard of plans found; how wide intervals are follows from how far left-out sources missed.
"""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from htk.base.mappings import Facts
from htk.planning.plan.job import PlannedJob

_LONG = 16_384  # tokens of a sequence that are many
_GROWTH = 0.05  # for each doubling of GPUs beyond what was checked


@dataclass(frozen=True)
class Certainty:
    sigma: float  # of the step's logarithm
    checked: tuple[str, ...]  # what measured jobs were held against
    unchecked: tuple[str, ...]  # what of this job none had
    factors: Mapping[str, float]  # of the intervals, in sigmas, by percent

    def factor(self, percent: int) -> float:
        """Return what the step is multiplied and divided by, for its interval."""
        return math.exp(self.factors[str(percent)] * self.sigma)


def estimate_plan_certainty(job: PlannedJob, comm_share: float = 1.0) -> Certainty:
    """Return how far a plan of this job may miss; `comm_share`: what all communication would take,
    of the step: a network that none checked makes no more than that unsure."""
    table = _load_table()
    more = {}
    if _own_network(job):
        unsure = table["base"]["unchecked"] * min(comm_share, 1.0)
        more["a network other than the catalogue's"] = unsure
    most = table["base"]["gpus"]
    if job.ranks > most:
        more[f"more than {most} GPUs"] = _GROWTH * math.log2(job.ranks / most)
    return by_traits(table, list_plan_traits(job), more)


def by_traits(table: Facts, names: Iterable[str], more: Mapping[str, float]) -> Certainty:
    """Return how far what has these traits may miss, by a table of what measured ones missed by;
    `more`: what was never checked beside them, in sigmas of the logarithm."""
    base = table["base"]
    variance = base["sigma"] ** 2
    checked = []
    unchecked = []
    for trait in names:
        facts = table["trait"].get(trait)
        if facts is None:
            variance += base["unchecked"] ** 2
            unchecked.append(trait)
        else:
            variance += facts["sigma"] ** 2
            checked.append(f"{trait} ({facts['rows']} jobs of {', '.join(facts['sources'])})")
    variance += sum(sigma**2 for sigma in more.values())
    unchecked += more
    return Certainty(math.sqrt(variance), tuple(checked), tuple(unchecked), table["factor"])


def _own_network(job: PlannedJob) -> bool:
    usual = replace(job, fabric=None, link_gbps=None, pod_gpus=0, oversubscription=1.0)
    return job.network != usual.network


def list_plan_traits(job: PlannedJob) -> Iterator[str]:
    """Yield what may make a plan of a job miss, in words."""
    model = job.model
    yield f"{job.gpu.architecture or job.gpu.name} GPUs"
    number_format = job.format.rate
    if number_format != "bf16":
        yield f"products in {number_format}"
    for is_so, words in (
        (job.kernels != "fused", f"{job.kernels} kernels"),
        (job.attention != "flash", f"{job.attention} attention"),
        (job.tensor_parallel > 1, "tensor parallelism"),
        (job.pipeline_parallel > 1, "pipelines"),
        (job.schedule == "zero_bubble", "zero-bubble schedules"),
        (job.context_parallel > 1, "context parallelism"),
        (model.experts > 1, "mixtures of experts"),
        (job.overlap_expert, "overlapped all-to-alls of experts"),
        (model.latent is not None, "latent attention"),
        (model.state_space is not None, "state spaces"),
        (job.seq >= _LONG, f"sequences of {_LONG} tokens and more"),
        (job.lora_rank is not None, "LoRA"),
        (job.optimizer != "adam", f"optimizer {job.optimizer}"),
        (job.offload != "none", f"offload of {job.offload}"),
        (job.cuda_graphs, "CUDA graphs"),
    ):
        if is_so:
            yield words


@cache
def _load_table() -> Facts:
    text = files("htk.planning.plan").joinpath("checked.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
