"""What a GPU computes for one micro-batch of a stage: products, attention, all that moves memory.

A product takes its operations at a share of the fastest measured product, and beside that its
operands at what memory achieves: so small ones, such as those of few tokens for each expert or of a
layer that many GPUs share, are slower by themselves. What is no product takes the bytes that fused
kernels move.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from htk.physics.decoder import scan_flops, score_flops
from htk.physics.hardware import Gpu
from htk.planning.plan.job import PlannedJob

# Shares of the fastest measured product. Constants of this module were chosen on published jobs
# other than those that docs/plan_scorecard.md holds them against.
PRODUCTS = 0.92
GROUPED = 0.85  # products of many experts in one kernel
# PyTorch's own and compiled kernels on Hopper reach less than vendors' libraries for training do.
_FRAMEWORK = {"hopper": 0.85}
_TILE = 128 * 256  # results that a unit computes at a time
_TILE_NS = 2_000.0  # a tile's start and end, which no other products hide
# Attention forward and backward, by the papers of FlashAttention-2 (A100) and -3 (H100); eager:
# the kernels before those.
_ATTENTION = {"ampere": 0.6, "hopper": 0.55, "blackwell": 0.55}
_OTHER_ATTENTION = 0.4
_EARLIER = {"hopper": 0.48}  # of that, by the kernels of frameworks; elsewhere:
_EARLIER_ELSEWHERE = 0.6
_WIDE_HEAD, _NARROW = 128, 0.5  # narrower heads are slower: FlashAttention-3's tables
_RAMP = 512  # tokens at which attention reaches half of that
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

    @property
    def flops(self) -> float:
        return 2 * self.rows * self.inner * self.columns * self.count

    def moved(self, operand: float, result: float) -> float:
        into = self.rows * self.inner + self.inner * self.columns
        return self.count * (operand * into + result * self.rows * self.columns)


class StageCompute:
    """The work of one micro-batch on a GPU of an average stage, logits apart."""

    def __init__(self, job: PlannedJob) -> None:
        self.job, self.model, self.gpu = job, job.model, job.gpu
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
        back, again = self._passes[1], _AGAIN[self.job.checkpointing]
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
        model, job = self.model, self.job
        output = PlannedProduct(self.tokens, model.hidden, model.vocab / self.tensor)
        rate = PRODUCTS * job.gpu.achievable_half_tflops * 1e3
        bytes_per_ns = job.gpu.achievable_memory_gbps
        if self.format.rate == "fp32":
            rate = PRODUCTS * achievable(job.gpu, "fp32") * 1e3
        ns = output.flops / rate + output.moved(2, 2) / bytes_per_ns
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
        back = PassTime(backward, 2.5 * attention, 1.5 * memory, casts)
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
            hidden, t = self.model.hidden, self.tensor
            yield PlannedProduct(self.tokens, hidden, space.projected / t, count)
            yield PlannedProduct(self.tokens, space.inner / t, hidden, count)

    def _of_stage(self, layers: float) -> float:
        """Return the stage's part of a sum over layers; each further prediction repeats the average
        layer."""
        model = self.model
        return layers * (1 + model.predictions / model.layers) / self.job.pipeline_parallel

    def _attention_products(self) -> Iterator[PlannedProduct]:
        model, t, rows = self.model, self.tensor, self.tokens
        count, latent = self._of_stage(model.mixers), model.latent
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
        model, t = self.model, self.tensor
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
        model, job = self.model, self.job
        own = model.experts / job.expert_parallel
        group = job.expert_tensor
        taken = self.routed_tokens * (group if job.expert_parallel > 1 else 1)
        rows, width = taken / own, model.expert_input or model.hidden
        count, ffn = layers * own, model.ffn / group
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
        kept = self.format
        rate = achievable(self.gpu, kept.rate) * 1e3
        depth = tile_depth(self.gpu, rate)
        bytes_per_ns = self.gpu.achievable_memory_gbps
        there = back = 0.0
        for product in products:
            share = GROUPED if product.grouped else PRODUCTS
            ns = product.flops / (share * self._library * rate)
            moved = product.moved(kept.operand_bytes, kept.element_bytes) / bytes_per_ns
            there += ns * (1 + depth / product.inner) + moved
            back += ns * (1 + depth / product.columns) + moved
            if self.job.lora_rank is None:
                back += ns * (1 + depth / product.rows) + moved
        return there, back

    @property
    def _library(self) -> float:
        """The share of a library's rate that the job's kernels reach."""
        if self.job.kernels == "fused":
            return 1.0
        return _FRAMEWORK.get(self.gpu.architecture, 1.0)

    @cached_property
    def _attention_ns(self) -> float:
        model, job = self.model, self.job
        share = flash_share(self.gpu, model.value_width / model.heads)
        if job.kernels != "fused":
            share *= _EARLIER.get(self.gpu.architecture, _EARLIER_ELSEWHERE)
        share *= job.seq / (job.seq + _RAMP)
        rate = share * self.gpu.achievable_half_tflops * 1e3
        flops = score_flops(model, job.seq) * job.micro_batch / job.context_parallel
        scan = self.tokens * model.state_space_layers * scan_flops(model)
        scan_rate = _SCAN * self.gpu.achievable_half_tflops * 1e3
        return self._of_stage(flops / rate + scan / scan_rate) / self.tensor

    @cached_property
    def memory_ns(self) -> float:
        """Return the forward time of norms, residuals, positions and routed tokens, in ns."""
        model, t, split = self.model, self.tensor, self.job.sequence_split
        layers = model.mixers + model.feed_forwards + model.state_space_layers
        norms = 5 * model.hidden / split * layers
        turned = 2 * (model.query_width + model.kv_width) / t * model.mixers
        moe, plain = model.moe_layers, model.feed_forwards - model.moe_layers
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
        casts results' gradients."""
        per_element = self.format.cast_bytes
        elements = sum(p.count * p.rows * (p.inner + p.columns) / 2 for p in products)
        return per_element * elements / self.gpu.achievable_memory_gbps

    def _gaps_ns(self, there: PassTime, back: PassTime) -> float:
        model, job = self.model, self.job
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


def flash_share(gpu: Gpu, head_width: float) -> float:
    """Return the share of the fastest product that attention forward reaches on long sequences."""
    share = _ATTENTION.get(gpu.architecture, _OTHER_ATTENTION)
    narrow: float = min(head_width / _WIDE_HEAD, 1.0) ** _NARROW
    return share * narrow


def tile_depth(gpu: Gpu, rate: float) -> float:
    """Return the inner width that takes as long as a tile's ends; `rate` in operations a ns."""
    return _TILE_NS * rate / gpu.units / (2 * _TILE)


def optimizer_ns(gpu: Gpu, trained: float, state_bytes: float) -> float:
    """Return the time of one update, in ns: state, gradients, parameters, each way."""
    return trained * (2 * state_bytes + _STATE_BYTES - 12) / gpu.achievable_memory_gbps


def achievable(gpu: Gpu, number_format: str) -> float:
    """Return the fastest product in TFLOP/s; in 16 bits where it has none in that format."""
    return gpu.achievable_tflops(number_format) or gpu.achievable_half_tflops
