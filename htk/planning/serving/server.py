"""An inference server as it is described: model, GPUs of a replica, formats, how it schedules."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from htk.base.errors import UsageError
from htk.physics.decoder import Decoder
from htk.physics.hardware import Gpu
from htk.physics.memory import CONTEXT
from htk.physics.network import NVL72, Fabric, Network, described_network
from htk.planning.serving.formats import WeightFormat, kv_element_bytes, weight_format
from htk.planning.serving.kv_cache import request_bytes, token_bytes

KERNELS = ("fused", "eager")
HOST_NS = 500_000.0  # of the host in an iteration that no GPU hides: scheduling, sampling
_MEMORY_SHARE = 0.9  # of a GPU that an engine takes: vLLM's --gpu-memory-utilization
_WORKSPACE = 6  # elements of a token and hidden width that an iteration has at hand at once
_LOGIT_BYTES = 6  # of a request and entry of the vocabulary: in half and in single precision


@dataclass(frozen=True)
class Speculation:
    """Tokens are drafted and then verified in one iteration."""

    draft_tokens: int
    acceptance: float  # probability that a drafted token is right, where those before it are
    draft: Decoder | None = None  # None: a head of one layer of the model's own

    def __post_init__(self) -> None:
        if self.draft_tokens < 1:
            raise UsageError(f"{self.draft_tokens} drafted tokens: at least 1 was expected")
        if not 0 <= self.acceptance <= 1:
            raise UsageError(f"acceptance {self.acceptance:g}: a share from 0 to 1 was expected")

    @property
    def tokens(self) -> float:
        """Expected tokens of an iteration: those accepted, and the one after (Leviathan et al.)."""
        if self.acceptance == 1:
            return self.draft_tokens + 1.0
        powers = self.acceptance ** (self.draft_tokens + 1)
        return (1 - powers) / (1 - self.acceptance)


@dataclass(frozen=True)
class Server:
    """One replica."""

    model: Decoder
    gpu: Gpu
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    weights: str = "bf16"
    kv_cache: str = "bf16"
    chunk: int = 8192  # tokens of prompts in an iteration, at most
    speculation: Speculation | None = None
    kernels: str = "fused"  # in CUDA graphs; eager: operator by operator
    gpus_per_node: int = 8
    domain: int | None = None
    fabric: Fabric | None = None
    link_gbps: float | None = None
    host_ns: float = HOST_NS
    price: float | None = None  # of a GPU-hour

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "pipeline_parallel", "chunk", "gpus_per_node"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be at least 1")
        if self.model.heads % self.tensor_parallel:
            raise UsageError(
                f"tensor parallelism of {self.tensor_parallel} does not divide"
                f" {self.model.heads} heads"
            )
        if self.pipeline_parallel > self.model.layers:
            raise UsageError(
                f"a pipeline of {self.pipeline_parallel} stages for {self.model.layers} layers"
            )
        if self.kernels not in KERNELS:
            raise UsageError(f"kernels {self.kernels!r}: one of {', '.join(KERNELS)}")
        if not (self.host_ns >= 0 and math.isfinite(self.host_ns)):
            raise UsageError(f"host time {self.host_ns:g} ns: a number from 0 was expected")
        if self.price is not None and not (self.price > 0 and math.isfinite(self.price)):
            raise UsageError(f"price {self.price:g}: a positive number was expected")
        kv_element_bytes(self.kv_cache)
        weight_format(self.weights, self.gpu)

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def format(self) -> WeightFormat:
        return weight_format(self.weights, self.gpu)

    @cached_property
    def served(self) -> Decoder:
        """The model without what it predicts in training alone."""
        return replace(self.model, predictions=0)

    @cached_property
    def network(self) -> Network:
        nvl72 = self.gpu.name in ("gb200", "gb300")
        domain = self.domain or (NVL72 if nvl72 else self.gpus_per_node)
        return described_network(self.gpu, domain, self.fabric, self.link_gbps)

    @cached_property
    def weight_bytes(self) -> float:
        """Return the weights' bytes on the fullest GPU; embedding and output have 16 bits."""
        model = self.served
        stages = self.pipeline_parallel
        layers = self.format.weight_bytes * (model.parameters - model.root_parameters) / stages
        ends = 2 * model.root_parameters / (2 if stages > 1 else 1)
        return (layers + ends) / self.tensor_parallel + self._draft_bytes

    @property
    def _draft_bytes(self) -> float:
        if self.speculation is None:
            return 0.0
        draft = self.drafter
        if self.speculation.draft is None:  # output and embedding are the model's own
            own = float(draft.parameters - draft.root_parameters)
            return self.format.weight_bytes * own / self.tensor_parallel
        return 2 * draft.parameters / self.tensor_parallel

    @cached_property
    def drafter(self) -> Decoder:
        """Return what drafts tokens: a model, or a layer like the model's own."""
        own = self.speculation.draft if self.speculation else None
        if own is not None:
            return replace(own, predictions=0)
        split = self.model.attention_layers is not None
        layers = 2 if split else 1
        attention_layers = 1 if split else None
        ffn_layers = 1 if split else None
        return replace(
            self.served, layers=layers, dense_layers=0, windowed_layers=0,
            attention_layers=attention_layers, ffn_layers=ffn_layers,
        )  # fmt: skip

    @cached_property
    def kv_room_bytes(self) -> float:
        """Memory of a GPU that is left for keys and values; negative: the model does not fit."""
        model = self.served
        t = self.tensor_parallel
        wide = _WORKSPACE * model.hidden + model.ways * (model.dense_ffn or model.ffn) / t
        workspace = 2 * self.chunk * wide
        return _MEMORY_SHARE * self.gpu.memory_bytes - CONTEXT - self.weight_bytes - workspace

    def kv_bytes(self, requests: float, tokens: float) -> float:
        """Return what so many requests of so many tokens take on each GPU."""
        each = request_bytes(
            self.served, tokens, kv_element_bytes(self.kv_cache), self.tensor_parallel
        )
        return requests * each / self.pipeline_parallel

    @property
    def kv_token_bytes(self) -> float:
        """Return the bytes of a further token on each GPU, where no window is full."""
        each = token_bytes(self.served, kv_element_bytes(self.kv_cache), self.tensor_parallel)
        return each / self.pipeline_parallel

    def most_requests(self, tokens: float) -> int:
        """Return how many requests fit whose last token is the so many-th."""
        logits = _LOGIT_BYTES * self.served.vocab / self.tensor_parallel
        each = self.kv_bytes(1, tokens) + logits
        return max(int(self.kv_room_bytes // each), 0) if each else 0
