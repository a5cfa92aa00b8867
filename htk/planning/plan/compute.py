"""What a GPU computes for one micro-batch of a stage: products, attention, all that moves memory.

Products, experts and attention take what measured kernels of their size do, and a little more, as
kernels of a step do. What is neither takes the bytes that fused kernels move.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from htk.physics.decoder import scan_flops
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import time_kernel
from htk.physics.layer_time import ATTENTION_BACKWARD, time_attention, time_experts
from htk.planning.plan.job import PlannedJob

# What a kernel of a step takes over the same one measured alone: it heats the GPU, and shares its
# memory with others. Constants of this module were chosen on published jobs other than NVIDIA's,
# which docs/plan_scorecard.md holds them against.
_SLOWED = 1.1
# Shares of libraries' rates that kernels of frameworks reach, compiled or not: in products, and in
# attention before FlashAttention-3.
_FRAMEWORK = {"hopper": 0.85}
_EARLIER = {"hopper": 0.35}
_EARLIER_ELSEWHERE = 0.6
_SCAN = 0.15  # of a state space's scan
_SCORES = 12  # bytes of a head and pair of tokens, where scores are written out
_EAGER = 2.0  # times the bytes of fused kernels
KERNEL_NS = 2_000.0  # between a kernel's end and the next one's start on the GPU
LAUNCH_NS = 6_000.0  # of the host, for each kernel; CUDA graphs need none
# Kernels of a layer, forward and backward.
_KERNELS = {"attention": 40, "dense": 30, "moe": 120, "state_space": 60}
_EAGER_KERNELS = 2.0
# Of what is done without recomputation: products, attention, all else.
_AGAIN = {"none": (0.0, 0.0, 0.0), "selective": (0.5, 0.0, 1.0), "full": (1.0, 1.0, 1.0)}
_STATE_BYTES = 18  # read and written beside the optimizer's own, of a parameter
BACKWARD = 2.0  # passes forward that a pass backward is worth
_EXPERTS = "balanced"  # tokens over experts, as their loss makes them


@dataclass(frozen=True)
class PassTime:
    """Times of one micro-batch on a GPU of a stage, one way, in ns."""

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    casts: float = 0.0
    gaps: float = 0.0  # between kernels, and where the host is late

    @property
    def total(self) -> float:
        return self.products + self.attention + self.memory + self.casts + self.gaps

    def times(self, factor: float) -> "PassTime":
        return PassTime(*(factor * part for part in self.parts))

    def plus(self, other: "PassTime") -> "PassTime":
        return PassTime(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, float, float, float, float]:
        return self.products, self.attention, self.memory, self.casts, self.gaps


@dataclass(frozen=True)
class PlannedProduct:
    """Rows times inner by columns, so many times for each micro-batch."""

    rows: float
    inner: float
    columns: float
    count: float = 1.0
    grouped: bool = False


class StageCompute:
    """The work of one micro-batch on a GPU of an average stage, logits apart."""

    def __init__(self, job: PlannedJob) -> None:
        self.job = job
        self.model = job.model
        self.gpu = job.gpu
        self.tokens = job.tokens_of_rank
        self.format = job.format
        self.tensor = job.tensor_parallel

    @cached_property
    def forward(self) -> PassTime:
        """Return the forward time of a stage's layers."""
        return self._passes[0]

    @cached_property
    def backward(self) -> PassTime:
        """Return the backward time of a stage's layers, with recomputation."""
        back = self._passes[1]
        again = _AGAIN[self.job.checkpointing]
        there = self.forward
        return back.plus(
            PassTime(
                again[0] * there.products,
                again[1] * there.attention,
                again[2] * there.memory,
                again[0] * there.casts,
                again[0] * there.gaps,
            )
        )

    @cached_property
    def logits(self) -> tuple[PassTime, PassTime]:
        """Return the times of logits and loss each way; the last stage has them in 16 bits."""
        model = self.model
        job = self.job
        number_format = "fp32" if self.format.rate == "fp32" else "bf16"
        columns = model.vocab / self.tensor
        ns = self._product_ns(number_format, self.tokens, columns, model.hidden)
        bytes_per_ns = job.gpu.achievable_memory_gbps
        ns *= 1 + model.predictions
        loss = 10 * (1 + model.predictions) * self.tokens * model.vocab / self.tensor / bytes_per_ns
        return PassTime(ns, memory=loss), PassTime(self._ways_back * ns, memory=loss)

    @property
    def _ways_back(self) -> float:
        """The products backward for each forward: inputs' gradients, and weights' where trained."""
        return 1.0 if self.job.lora_rank is not None else BACKWARD

    @cached_property
    def _passes(self) -> tuple[PassTime, PassTime]:
        products = list(self.products())
        forward, backward = self._products_ns(products)
        attention = self._attention_ns
        memory = self.memory_ns
        casts = self._casts_ns(products)
        there = PassTime(forward, attention, memory, casts)
        back = PassTime(backward, ATTENTION_BACKWARD * attention, 1.5 * memory, casts)
        gaps = self._gaps_ns(there, back)
        return (
            there.plus(PassTime(gaps=gaps / 3)),
            back.plus(PassTime(gaps=2 * gaps / 3)),
        )

    def products(self) -> Iterator[PlannedProduct]:
        """Yield the products of all layers of a stage, forward."""
        yield from self._attention_products()
        yield from self._feed_forward_products()
        space = self.model.state_space
        if space:
            count = self._of_stage(self.model.state_space_layers)
            hidden = self.model.hidden
            t = self.tensor
            yield PlannedProduct(self.tokens, hidden, space.projected / t, count)
            yield PlannedProduct(self.tokens, space.inner / t, hidden, count)

    def _of_stage(self, layers: float) -> float:
        """Return the stage's part of a sum over layers; each further prediction repeats the average
        layer."""
        model = self.model
        return layers * (1 + model.predictions / model.layers) / self.job.pipeline_parallel

    def _attention_products(self) -> Iterator[PlannedProduct]:
        model = self.model
        t = self.tensor
        rows = self.tokens
        count = self._of_stage(model.mixers)
        latent = model.latent
        yield PlannedProduct(rows, model.value_width / t, model.hidden, count)
        if latent is None:
            yield PlannedProduct(
                rows, model.hidden, (model.query_width + 2 * model.kv_width) / t, count
            )
            return
        down = latent.query_rank + latent.kv_rank + latent.rope_dim
        yield PlannedProduct(rows / self.job.sequence_split, model.hidden, down, count)
        inner = latent.query_rank or model.hidden
        yield PlannedProduct(rows, inner, model.query_width / t, count)
        up = model.heads * (latent.nope_dim + latent.value_dim) / t
        yield PlannedProduct(rows, latent.kv_rank, up, count)

    def _feed_forward_products(self) -> Iterator[PlannedProduct]:
        model = self.model
        t = self.tensor
        moe = self._of_stage(model.moe_layers)
        dense = self._of_stage(model.feed_forwards - model.moe_layers)
        width = (model.dense_ffn if model.moe_layers else model.ffn) or model.ffn
        for count, ffn in ((dense, width), (moe, model.shared_ffn)):
            if count and ffn:
                yield PlannedProduct(self.tokens, model.hidden, (model.ways - 1) * ffn / t, count)
                yield PlannedProduct(self.tokens, ffn / t, model.hidden, count)
        if moe:
            yield PlannedProduct(
                self.tokens / self.job.sequence_split, model.hidden, model.experts, moe
            )
            yield from self._expert_products(moe)

    def _expert_products(self, layers: float) -> Iterator[PlannedProduct]:
        """Yield the products of a rank's experts, which take the even share: as many tokens as its
        own choose."""
        model = self.model
        job = self.job
        own = model.experts / job.expert_parallel
        group = job.expert_tensor
        taken = self.routed_tokens * (group if job.expert_parallel > 1 else 1)
        rows = taken / own
        width = model.expert_input or model.hidden
        count = layers * own
        ffn = model.ffn / group
        yield PlannedProduct(rows, width, (model.ways - 1) * ffn, count, grouped=True)
        yield PlannedProduct(rows, ffn, width, count, grouped=True)
        if model.expert_input:  # to the narrower input, and back
            yield PlannedProduct(self.tokens / job.sequence_split, model.hidden, width, 2 * layers)

    @property
    def routed_tokens(self) -> float:
        """The number of copies of its tokens that a rank sends to experts, for each layer."""
        job = self.job
        split = job.sequence_split if job.expert_parallel > 1 else 1
        return self.tokens / split * self.model.active_experts * min(job.capacity or 1.0, 1.0)

    def _products_ns(self, products: list[PlannedProduct]) -> tuple[float, float]:
        """Return the times of products forward and backward, each way those of experts too."""
        rate = self.format.rate
        there = self._experts_ns
        back = self._ways_back * there
        for p in products:
            if not p.grouped:
                there += p.count * self._product_ns(rate, p.rows, p.columns, p.inner)
                back += p.count * self._product_ns(rate, p.rows, p.inner, p.columns)
                if self.job.lora_rank is None:
                    back += p.count * self._product_ns(rate, p.columns, p.inner, p.rows)
        return there, back

    def _product_ns(self, rate: str, rows: float, columns: float, inner: float) -> float:
        return self._slowed * time_kernel(self.gpu, "matmul", rate, rows, (columns, inner))

    @cached_property
    def _experts_ns(self) -> float:
        """Return the time of a stage's experts forward, of the tokens of all that share them."""
        model = self.model
        job = self.job
        if not model.moe_layers:
            return 0.0
        tokens = self.routed_tokens * job.expert_tensor / model.active_experts * job.expert_parallel
        each = time_experts(
            model, self.gpu, self.format.rate, tokens, _EXPERTS, job.expert_tensor,
            job.expert_parallel,
        )  # fmt: skip
        return self._slowed * self._of_stage(model.moe_layers) * each

    @property
    def _slowed(self) -> float:
        """The time of a kernel of this job over that of a library's alone: of a step, and of its
        framework."""
        fused = self.job.kernels == "fused"
        return _SLOWED / (1.0 if fused else _FRAMEWORK.get(self.gpu.architecture, 1.0))

    @cached_property
    def _attention_ns(self) -> float:
        model = self.model
        job = self.job
        each = time_attention(model, self.gpu, self.tensor, job.micro_batch, job.seq)
        ns = _SLOWED * each / job.context_parallel
        if job.kernels != "fused":
            ns /= _EARLIER.get(self.gpu.architecture, _EARLIER_ELSEWHERE)
        scan = self.tokens * model.state_space_layers * scan_flops(model) / self.tensor
        scan_rate = _SCAN * self.gpu.achievable_half_tflops * 1e3
        return self._of_stage(ns + scan / scan_rate)

    @cached_property
    def memory_ns(self) -> float:
        """Return the forward time of norms, residuals, positions and routed tokens, in ns."""
        model = self.model
        t = self.tensor
        split = self.job.sequence_split
        layers = model.mixers + model.feed_forwards + model.state_space_layers
        norms = 5 * model.hidden / split * layers
        turned = 2 * (model.query_width + model.kv_width) / t * model.mixers
        moe = model.moe_layers
        plain = model.feed_forwards - model.moe_layers
        copies = self.routed_tokens / self.tokens
        width = model.expert_input or model.hidden
        act = model.ways / t * (plain * (model.dense_ffn or model.ffn) + moe * model.shared_ffn)
        act += moe * copies * (model.ways * model.ffn + 4 * width)
        space = model.state_space
        if space:
            act += model.state_space_layers / t * (4 * space.projected + 10 * space.inner)
        elements = self.tokens * (norms + turned + act)
        times = _EAGER if self.job.kernels == "eager" else 1.0
        moved = times * self.format.element_bytes * elements
        if self.job.attention != "flash":
            scores = model.mixers * model.heads / t * self.tokens * self.job.seq
            moved += _SCORES * scores
        return self._of_stage(moved) / self.gpu.achievable_memory_gbps

    def _casts_ns(self, products: list[PlannedProduct]) -> float:
        """Return the time of one pass to cast what goes into products, in ns; the backward pass
        casts results' gradients. Measured experts hold their casts."""
        per_element = self.format.cast_bytes
        elements = sum(
            p.count * p.rows * (p.inner + p.columns) / 2 for p in products if not p.grouped
        )
        return per_element * elements / self.gpu.achievable_memory_gbps

    def _gaps_ns(self, there: PassTime, back: PassTime) -> float:
        model = self.model
        job = self.job
        counts = {
            "attention": model.mixers, "state_space": model.state_space_layers,
            "moe": model.moe_layers, "dense": model.feed_forwards - model.moe_layers,
        }  # fmt: skip
        kernels = self._of_stage(sum(_KERNELS[kind] * n for kind, n in counts.items()))
        kernels *= _EAGER_KERNELS if job.kernels == "eager" else 1.0
        gaps = KERNEL_NS * kernels
        if job.cuda_graphs:
            return gaps
        busy = there.total + back.total + gaps
        return gaps + max(LAUNCH_NS * kernels - busy, 0.0)


def optimizer_ns(gpu: Gpu, trained: float, state_bytes: float) -> float:
    """Return the time of one update, in ns: state, gradients, parameters, each way."""
    return trained * (2 * state_bytes + _STATE_BYTES - 12) / gpu.achievable_memory_gbps
