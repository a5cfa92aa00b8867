"""A claim about a described job, and what its numbers mean as tokens a second and operations.

The same number is counted in several ways: MFU with attention in full (6N + 12·L·h·s a token, PaLM,
arXiv:2204.02311) or halved where it is causal; hardware figures with what is computed again. A
claim is read in the way that asks least of the GPU: what is called impossible is so in any.
"""

from dataclasses import dataclass
from functools import cached_property

from htk.base.errors import UsageError
from htk.physics.decoder import Decoder, model_flops
from htk.physics.hardware import Gpu

PRECISIONS = ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")
_AGAIN = {"none": 1.0, "selective": 1.0, "full": 4 / 3}  # least operations, of those done once
_MOST_AGAIN = 4 / 3
_WIDTH = 128  # of a head; published dense models are about that many times as wide as deep


@dataclass(frozen=True)
class Numbers:
    """What was claimed; of the whole job where nothing else is said."""

    mfu_pct: float | None = None
    hfu_pct: float | None = None
    tflops_per_gpu: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    step_s: float | None = None

    @property
    def stated(self) -> dict[str, float]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class ClaimedJob:
    """What the claim is about; what was not said is None."""

    gpu: Gpu
    gpus: int
    numbers: Numbers
    model: Decoder | None = None
    active_parameters: float | None = None  # where no model is described
    precision: str = ""  # the GPU's 16-bit format
    seq: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None  # sequences
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    virtual_stages: int = 1
    checkpointing: str | None = None
    gpus_per_node: int = 8
    context_parallel: int = 1
    expert_parallel: int = 1
    strategy: str | None = None  # None: the one that suits the claim best
    kernels: str = "fused"
    attention: str = "flash"

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", self.precision or self.gpu.half_format)
        stated = self.numbers.stated
        if not stated:
            raise UsageError("a claim needs a number: --mfu, --tflops, --tokens-per-s, --step-time")
        if any(not 0 < value < 1e18 for value in stated.values()):
            raise UsageError("a claimed number must be positive")
        counts = [self.gpus, self.gpus_per_node, self.virtual_stages]
        counts += [self.context_parallel, self.expert_parallel]
        sizes = (self.seq, self.micro_batch, self.global_batch)
        ways = (self.tensor_parallel, self.pipeline_parallel)
        if min((*counts, *(n for n in (*sizes, *ways) if n is not None))) < 1:
            raise UsageError("GPUs, lengths, batches and ways of parallelism must be at least 1")
        if self.active_parameters is not None and not 0 < self.active_parameters < 1e16:
            raise UsageError("parameters: a positive number was expected, such as 13B")
        if self.peak_flops is None:
            raise UsageError(f"{self.gpu.device_name} does not compute in {self.precision}")
        if "step_s" in stated and (self.global_batch is None or self.seq is None):
            raise UsageError("--step-time needs --global-batch and --seq to be a rate")
        if self.flops_per_token is None and not stated.keys() & _OF_RATES:
            raise UsageError("tokens a second need --model or --parameters to be operations")

    @property
    def decoder(self) -> Decoder | None:
        """The model, or where only its size is said a dense one of that size."""
        if self.model is not None or self.active_parameters is None:
            return self.model
        layers = max(round((self.active_parameters / 12 / _WIDTH**2) ** (1 / 3)), 1)
        hidden = _WIDTH * layers
        return Decoder(
            "a dense model of that size", layers, hidden, layers, layers, 4 * hidden, 51_200,
            gated=False, tied=True,
        )  # fmt: skip

    @cached_property
    def peak_flops(self) -> float | None:
        """Dense, of one GPU, a second."""
        peaks = {
            "bf16": self.gpu.bf16_tflops,
            "fp16": self.gpu.fp16_tflops,
            "fp8": self.gpu.fp8_tflops,
            "fp4": self.gpu.fp4_tflops,
            "tf32": self.gpu.tf32_tflops,
            "fp32": self.gpu.fp32_matrix_tflops or self.gpu.fp32_tflops,
        }
        tflops = peaks[self.precision]
        return None if tflops is None else tflops * 1e12

    @property
    def flops_per_token(self) -> float | None:
        """The least model FLOPs: causal attention halved, nothing computed again."""
        if self.model is None:
            return None if self.active_parameters is None else 6 * self.active_parameters
        seq = self.seq or 1
        return model_flops(self.model, 1, seq) / seq

    @property
    def counted_per_token(self) -> float | None:
        """Return the FLOPs of a token as MFU usually counts them: attention in full."""
        least = self.flops_per_token
        if least is None or self.model is None:
            return least
        matrices = float(model_flops(self.model, 1, 1))
        return matrices + 2 * max(least - matrices, 0.0)

    @property
    def again(self) -> float:
        """Return the least work of the GPU relative to the work without recomputation."""
        return _AGAIN[self.checkpointing or "none"]

    @property
    def rates(self) -> dict[str, float]:
        """Tokens a second and GPU, by each number that tells it, in the reading that asks least."""
        counted = self.counted_per_token
        stated = self.numbers.stated
        peak = self.peak_flops or 0.0
        rates = {}
        if "tokens_per_s" in stated:
            rates["tokens_per_s"] = stated["tokens_per_s"] / self.gpus
        if "tokens_per_s_per_gpu" in stated:
            rates["tokens_per_s_per_gpu"] = stated["tokens_per_s_per_gpu"]
        if "step_s" in stated and self.global_batch and self.seq:
            rates["step_s"] = self.global_batch * self.seq / stated["step_s"] / self.gpus
        if counted is None:
            return rates
        if "mfu_pct" in stated:
            rates["mfu_pct"] = stated["mfu_pct"] / 100 * peak / counted
        again = _MOST_AGAIN if self.checkpointing != "none" else 1.0
        if "hfu_pct" in stated:
            rates["hfu_pct"] = stated["hfu_pct"] / 100 * peak / counted / again
        if "tflops_per_gpu" in stated:  # some count what is computed again
            hardware = again if self.checkpointing == "full" else 1.0
            rates["tflops_per_gpu"] = stated["tflops_per_gpu"] * 1e12 / counted / hardware
        return rates

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """The smallest of what the numbers say."""
        return min(self.rates.values(), default=None)

    @property
    def executed_flops(self) -> float:
        """Operations a second of one GPU that the claim asks at least."""
        rate = self.tokens_per_s_per_gpu
        per_token = self.flops_per_token
        if rate is not None and per_token is not None:
            return rate * per_token * self.again
        stated = self.numbers.stated
        peak = self.peak_flops or 0.0
        readings = [stated[name] / 100 * peak for name in ("mfu_pct", "hfu_pct") if name in stated]
        if "tflops_per_gpu" in stated:
            readings.append(stated["tflops_per_gpu"] * 1e12)
        return min(readings)

    @property
    def holders(self) -> int:
        """GPUs that hold one copy of the model between them."""
        return (self.tensor_parallel or 1) * (self.pipeline_parallel or 1)

    @property
    def shards(self) -> int:
        """GPUs that share a sequence."""
        return self.holders * self.context_parallel

    @property
    def replicas(self) -> int:
        return max(self.gpus // self.shards, 1)

    @property
    def micro_batches(self) -> int | None:
        """Return the micro-batches of a step that pass through each pipeline."""
        if self.global_batch is None or self.micro_batch is None:
            return None
        return max(self.global_batch // self.replicas // self.micro_batch, 1)


_OF_RATES = {"mfu_pct", "hfu_pct", "tflops_per_gpu"}
