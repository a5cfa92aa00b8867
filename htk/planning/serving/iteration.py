"""What one iteration of a server takes: tokens of prompts and requests that are answered together.

Products with weights take what measured kernels of their size do. Attention of answered requests
reads their keys and values; that of prompts takes what measured kernels do. Tensor parallelism sums
activations after attention and after the feed-forward.
"""

from dataclasses import dataclass, fields
from functools import cached_property

from htk.physics.collective_latency import hops_ns
from htk.physics.kernel_time import LARGE_PRODUCTS, partly_hidden, time_kernel
from htk.physics.layer_time import SERVED_SPREAD, time_attention, time_experts
from htk.planning.plan.compute import KERNEL_NS, LAUNCH_NS, PlannedProduct, StageCompute
from htk.planning.plan.job import PlannedJob
from htk.planning.serving.formats import kv_element_bytes, measured_format
from htk.planning.serving.kv_cache import kept_tokens, token_bytes
from htk.planning.serving.server import Server

# Kernels of a layer, fused: norm, projections, positions with the cache's write, attention, output;
# norm, two products round an activation; and with experts router, choice, sorting, and the sum.
_KERNELS = {"attention": 5, "dense": 4, "moe": 10, "state_space": 6}
_EAGER_KERNELS = 2.0
# Of those, kernels whose measured times hold what is around them: products, and all of experts.
_MEASURED = {"attention": 2, "dense": 2, "moe": 8, "state_space": 2}
_ENDS = 20  # kernels of embedding, last norm, output and sampling
_SHOT_NS = 10_000.0  # an all-reduce in one step, where links join all: engines' own kernel
_FAST_LINKS = 100.0  # GB/s one way from which engines use it: NVLink, xGMI


@dataclass(frozen=True)
class IterationWork:
    """What an iteration computes."""

    prompt_tokens: float = 0.0
    prompts: float = 0.0  # requests that those belong to
    cached: float = 0.0  # tokens of each that were computed before
    requests: float = 0.0  # being answered
    context: float = 0.0  # tokens that each of them looks back on
    tokens_each: float = 1.0  # of an answered request: more where drafts are verified

    @property
    def tokens(self) -> float:
        return self.prompt_tokens + self.requests * self.tokens_each

    @property
    def sampled(self) -> float:
        """Rows that the output is computed for."""
        return self.prompts + self.requests * self.tokens_each


@dataclass(frozen=True)
class IterationTime:
    """Parts in ns; they add up to the iteration."""

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0  # norms, activations, positions, casts
    communication: float = 0.0
    gaps: float = 0.0  # between kernels, and where the host launches too slowly
    draft: float = 0.0
    host: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(getattr(self, f.name) for f in fields(self)))


class ServerCompute:
    """Times of a server's iterations. With pipeline stages: of a batch through all of them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.model = server.served
        self.gpu = server.gpu
        self.tensor = server.tensor_parallel
        self.gbps = self.gpu.achievable_memory_gbps

    def iteration(self, work: IterationWork) -> IterationTime:
        """Return the time of one iteration and its parts."""
        products = self._products_ns(work.tokens, work.sampled)
        memory = self._memory_ns(work)
        attention = self._prompt_attention_ns(work) + self._answer_attention_ns(work)
        sent = self.communication_ns(work.tokens)
        gaps = self._gaps_ns(products + memory + attention + sent)
        draft = self._draft_ns(work)
        return IterationTime(products, attention, memory, sent, gaps, draft, self.server.host_ns)

    @cached_property
    def _of_a_token(self) -> StageCompute:
        """Products and bytes of one token; more tokens have so many times as many rows."""
        job = PlannedJob(
            self.model, self.gpu, 1, self.tensor, 1, 1, tensor_parallel=self.tensor,
            strategy="ddp", sequence_parallel=False,
        )  # fmt: skip
        return StageCompute(job)

    @cached_property
    def _shapes(self) -> tuple[PlannedProduct, ...]:
        """Products with weights of all tokens, for one token."""
        return tuple(p for p in self._of_a_token.products() if not p.grouped)

    def _products_ns(self, tokens: float, sampled: float) -> float:
        """Return the time of all products with weights, as measured kernels take them."""
        if not tokens:
            return 0.0
        kept = measured_format(self.server.format)
        total = 0.0
        if self.model.moe_layers:
            each = time_experts(self.model, self.gpu, kept, tokens, SERVED_SPREAD, self.tensor)
            total += self.model.moe_layers * each
        for p in self._shapes:
            shape = (p.columns, p.inner)
            total += p.count * time_kernel(self.gpu, "matmul", kept, p.rows * tokens, shape)
        output = (self.model.vocab / self.tensor, self.model.hidden)
        return total + time_kernel(self.gpu, "matmul", "bf16", sampled, output)

    def _memory_ns(self, work: IterationWork) -> float:
        cast = self.server.format.cast_bytes
        read = sum(p.count * p.rows * p.inner for p in self._shapes)
        casts = cast * read / self.gbps
        logits = 8 * self.model.vocab / self.tensor / self.gbps * work.sampled
        return work.tokens * (self._of_a_token.memory_ns + casts) + logits

    def _prompt_attention_ns(self, work: IterationWork) -> float:
        """Return each token of a prompt looks at those before it, computed now or earlier."""
        if not work.prompt_tokens:
            return 0.0
        prompts = max(work.prompts, 1.0)
        each = work.prompt_tokens / prompts
        alike = 2 * work.cached + each  # of a prompt read whole, whose tokens look back as far
        alone = time_attention(self.model, self.gpu, self.tensor, 1, each)
        looking = time_attention(self.model, self.gpu, self.tensor, 1, alike)
        read = self._kv_read(work.cached + each) / self.gbps
        return prompts * max(alone, looking * each / alike, read)

    def _answer_attention_ns(self, work: IterationWork) -> float:
        """Return how long attention of answered requests takes: keys are read once for all."""
        if not work.requests:
            return 0.0
        model = self.model
        width = model.query_width + model.value_width
        if model.latent is not None:  # queries meet the latent vector itself
            width = model.heads * (2 * model.latent.kv_rank + model.latent.rope_dim)
        seen = kept_tokens(model, work.context)
        flops = 2 * width * seen * work.requests * work.tokens_each / self.tensor
        ns = flops / (LARGE_PRODUCTS * self.gpu.achievable_half_tflops * 1e3)
        state = 2 * self.server.served.state_space_layers * self._state_read
        read = work.requests * (self._kv_read(work.context) + state) / self.gbps
        return partly_hidden(read, ns)

    @property
    def _state_read(self) -> float:
        space = self.model.state_space
        return 4.0 * space.inner * space.state / self.tensor if space else 0.0

    def _kv_read(self, tokens: float) -> float:
        element = kv_element_bytes(self.server.kv_cache)
        if not self.model.mixers:
            return 0.0
        layer = token_bytes(self.model, element, self.tensor) / self.model.mixers
        return layer * kept_tokens(self.model, tokens)

    def communication_ns(self, tokens: float) -> float:
        """Return the sums of activations between tensor-parallel GPUs, and hops between stages."""
        model = self.model
        server = self.server
        size = 2 * tokens * model.hidden
        layers = model.mixers + model.feed_forwards + model.state_space_layers
        total = layers * self._all_reduce_ns(size) if self.tensor > 1 else 0.0
        stages = server.pipeline_parallel
        if stages > 1:
            network = server.network
            stride = self.tensor
            far = network.members(2, stride) < 2
            latency = (network.across if far else network.within).latency
            each = latency + size / self.tensor * network.spread_pace(2, stride)
            total += (stages - 1) * each
        return total

    def _all_reduce_ns(self, size: float) -> float:
        """In one step where fast links join all of them, or round a ring."""
        t = self.tensor
        network = self.server.network
        members = network.members(t, 1)
        wire = 2 * (t - 1) / t * size * network.spread_pace(t, 1)
        ring = wire + max(network.latency(t, members), hops_ns("all_reduce", t, members, wire))
        links = self.server.link_gbps or self.gpu.scale_up_gbps
        if members < t or links < _FAST_LINKS:
            return ring
        return min(ring, _SHOT_NS + (t - 1) * size * network.spread_pace(t, 1))

    def _gaps_ns(self, busy: float) -> float:
        model = self.model
        counts = {
            "attention": model.mixers, "state_space": model.state_space_layers,
            "moe": model.moe_layers, "dense": model.feed_forwards - model.moe_layers,
        }  # fmt: skip
        kernels = float(_ENDS) + sum(_KERNELS[kind] * n for kind, n in counts.items())
        measured = sum(_MEASURED[kind] * n for kind, n in counts.items())
        if self.server.kernels == "fused":
            return KERNEL_NS * (kernels - measured)
        kernels *= _EAGER_KERNELS
        gaps = KERNEL_NS * (kernels - measured)
        return gaps + max(LAUNCH_NS * kernels - busy - gaps, 0.0)

    def _draft_ns(self, work: IterationWork) -> float:
        """A drafting model is run once for each drafted token, on requests that are answered."""
        plan = self.server.speculation
        if plan is None or not work.requests:
            return 0.0
        step = self._drafting.iteration(IterationWork(requests=work.requests, context=work.context))
        return plan.draft_tokens * (step.total - step.host)

    @cached_property
    def _drafting(self) -> "ServerCompute":
        server = self.server
        plan = self.server.speculation
        weights = server.weights if plan is not None and plan.draft is None else "bf16"
        return ServerCompute(
            Server(
                server.drafter, server.gpu, server.tensor_parallel, 1, weights, server.kv_cache,
                gpus_per_node=server.gpus_per_node, domain=server.domain, fabric=server.fabric,
                link_gbps=server.link_gbps, kernels=server.kernels,
            )
        )  # fmt: skip
