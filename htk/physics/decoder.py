"""Decoder-only models: their parameters and the work of a training step.

Parameter counts follow the published layouts: LLaMA (rotary positions, gated feed-forward, no
biases, untied output), GPT-3 (learned positions, biases, the output shares the embedding), latent
attention and shared experts (DeepSeek-V3), layers of state spaces (Mamba-2) among those of
attention. Sizes by name stand in `presets`.
"""

from dataclasses import dataclass

from htk.base.errors import UsageError


@dataclass(frozen=True)
class LatentAttention:
    """Keys and values from a narrow vector (DeepSeek's MLA). Widths of a head, ranks of all."""

    query_rank: int  # 0: queries are projected at once
    kv_rank: int
    nope_dim: int  # of queries and keys, without positions
    rope_dim: int  # with rotary positions; one key of it for all heads
    value_dim: int


@dataclass(frozen=True)
class StateSpace:
    """A Mamba-2 mixer."""

    heads: int
    head_dim: int
    groups: int
    state: int
    convolution: int = 4

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def projected(self) -> int:
        """Return the width of the first projection: gate, input, B, C and each head's step."""
        return 2 * self.inner + 2 * self.groups * self.state + self.heads


@dataclass(frozen=True)
class Decoder:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    gated: bool = True  # SwiGLU and RMSNorm; otherwise GELU, LayerNorm and biases
    tied: bool = False  # the output shares the embedding
    positions: int = 0  # learned ones; 0: rotary
    experts: int = 1  # feed-forwards of a layer; `ffn` is the width of one
    active_experts: int = 1  # that each token takes
    head_size: int = 0  # 0: hidden over heads
    shared_ffn: int = 0  # width of the experts that every token takes
    dense_layers: int = 0  # of a mixture of experts: those with one feed-forward of `dense_ffn`
    dense_ffn: int = 0
    expert_input: int = 0  # width that tokens are projected to for routed experts; 0: hidden
    biases: bool | None = None  # None: where it is not gated
    latent: LatentAttention | None = None
    window: int = 0  # tokens that windowed layers look back
    windowed_layers: int = 0
    state_space: StateSpace | None = None
    predictions: int = 0  # further tokens predicted in training: each a layer and the output again
    # Of models whose layers are a mixer or a feed-forward alone; None: every layer has both.
    attention_layers: int | None = None
    ffn_layers: int | None = None

    @property
    def head_dim(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def query_width(self) -> int:
        """Return the width of queries, all heads together."""
        if self.latent:
            return self.heads * (self.latent.nope_dim + self.latent.rope_dim)
        return self.heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Return the width of attention's output before its projection."""
        return self.heads * (self.latent.value_dim if self.latent else self.head_dim)

    @property
    def kv_width(self) -> int:
        """Return the width of a token's keys, or of its values."""
        return self.query_width if self.latent else self.kv_heads * self.head_dim

    @property
    def mixers(self) -> int:
        """The number of layers with attention."""
        return self.layers if self.attention_layers is None else self.attention_layers

    @property
    def feed_forwards(self) -> int:
        return self.layers if self.ffn_layers is None else self.ffn_layers

    @property
    def state_space_layers(self) -> int:
        return self.layers - self.mixers - self.feed_forwards if self.state_space else 0

    @property
    def moe_layers(self) -> int:
        return self.feed_forwards - self.dense_layers if self.experts > 1 else 0

    @property
    def has_biases(self) -> bool:
        return not self.gated if self.biases is None else self.biases

    @property
    def ways(self) -> int:
        """The number of matrices of a feed-forward."""
        return 3 if self.gated else 2

    @property
    def expert_parameters(self) -> int:
        """Return the parameters of one feed-forward, without biases."""
        return self.ways * (self.expert_input or self.hidden) * self.ffn

    @property
    def attention_matrices(self) -> int:
        """The number of weights of one attention layer."""
        if self.latent is None:
            return 2 * self.hidden * (self.query_width + self.kv_width)
        narrow = self.latent
        rank = self.latent.query_rank
        queries = (
            rank * (self.hidden + self.query_width) if rank else self.hidden * self.query_width
        )
        keys = self.hidden * (narrow.kv_rank + narrow.rope_dim)
        values = narrow.kv_rank * self.heads * (narrow.nope_dim + narrow.value_dim)
        return queries + keys + values + self.value_width * self.hidden

    @property
    def beside_experts(self) -> int:
        """The number of weights of a mixture's layer that every token meets: router, shared
        experts, and the projections to a narrower input."""
        if self.experts == 1:
            return 0
        narrow = 2 * self.hidden * self.expert_input
        return self.hidden * self.experts + self.ways * self.hidden * self.shared_ffn + narrow

    @property
    def state_space_matrices(self) -> int:
        """The number of weights of one state-space layer that a token is multiplied with."""
        s = self.state_space
        return 0 if s is None else self.hidden * (s.projected + s.inner)

    @property
    def matrices(self) -> int:
        """The number of weights that a token is multiplied with, of all layers, routers too."""
        moe = self.beside_experts + self.active_experts * self.expert_parameters
        if not self.moe_layers:
            moe = self.expert_parameters
        dense = self.ways * self.hidden * self.dense_ffn
        return (
            self.mixers * self.attention_matrices
            + (self.feed_forwards - self.dense_layers) * moe
            + self.dense_layers * dense
            + self.state_space_layers * self.state_space_matrices
        )

    @property
    def idle_parameters(self) -> int:
        """Return the parameters of the experts that a token does not use."""
        idle = (self.experts - self.active_experts) * self.expert_parameters
        return self.moe_layers * idle

    @property
    def vectors(self) -> int:
        """The parameters of all layers outside matrices: norms, biases, and state spaces' own."""
        norm = self.hidden if self.gated else 2 * self.hidden
        each = 2 if self.attention_layers is None else 1
        norms = each * self.layers * (self.hidden if self.biases is False else norm)
        biases = 0
        if self.has_biases:
            experts = self.experts if self.moe_layers else 1
            ffn = (self.ways - 1) * self.ffn + self.hidden
            attention = self.query_width + 2 * self.kv_width + self.hidden
            biases = self.mixers * attention + self.feed_forwards * experts * ffn
        s = self.state_space
        own = 0
        if s is not None:
            channels = s.inner + 2 * s.groups * s.state
            own = channels * (s.convolution + 1) + 3 * s.heads + s.inner
        return norms + biases + self.state_space_layers * own

    @property
    def layer_parameters(self) -> int:
        """Return the parameters of the average layer."""
        return (self.matrices + self.idle_parameters + self.vectors) // self.layers

    @property
    def root_parameters(self) -> int:
        """Return the parameters outside layers: embedding, output, last norm, positions."""
        embedding = self.vocab * self.hidden
        norm = self.hidden if self.gated or self.biases is False else 2 * self.hidden
        output = 0 if self.tied else embedding
        return embedding + output + norm + self.positions * self.hidden

    @property
    def parameters(self) -> int:
        return self.matrices + self.idle_parameters + self.vectors + self.root_parameters

    @property
    def active_parameters(self) -> int:
        """The number of parameters that each token uses."""
        return self.parameters - self.idle_parameters


def check_decoder(model: Decoder) -> Decoder:
    """Return the model, if its sizes make a decoder."""
    sizes = (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn, model.vocab)
    if min(sizes) < 1 or model.head_size < 0 or model.heads % model.kv_heads:
        raise UsageError(_no_decoder(model))
    if not model.head_size and model.latent is None and model.hidden % model.heads:
        raise UsageError(_no_decoder(model))
    if not 1 <= model.active_experts <= model.experts:
        raise UsageError(
            f"{model.active_experts} active of {model.experts} experts: from 1 to all expected"
        )
    mixed = model.mixers + model.feed_forwards
    if model.attention_layers is not None and mixed > model.layers:
        raise UsageError(
            f"{model.mixers} layers of attention and {model.feed_forwards} of feed-forwards are"
            f" more than the {model.layers} layers"
        )
    if model.dense_layers > model.feed_forwards:
        raise UsageError(
            f"{model.dense_layers} dense of {model.feed_forwards} layers: no more than all expected"
        )
    return model


def _no_decoder(model: Decoder) -> str:
    return (
        f"{model.hidden} hidden, {model.heads} heads and {model.kv_heads} kv heads do not"
        " make a decoder: each must be positive and divide the one before"
    )


def attention_pairs(queries: int, keys: int, causal: bool) -> int:
    """Return the number of query-key pairs: Σ_i min(i, keys) where causal (aten, top-left)."""
    if not causal:
        return queries * keys
    full = max(0, queries - keys)
    ramp = min(queries, keys)
    return ramp * (ramp + 1) // 2 + full * keys


def attention_flops(model: Decoder, batch: int, seq: int) -> int:
    """Return the FLOPs of attention in one forward pass, all layers: scores and weighted values,
    and what state spaces do within a chunk and between chunks."""
    scans = seq * model.state_space_layers * scan_flops(model)
    return batch * (score_flops(model, seq) + scans)


def score_flops(model: Decoder, seq: int) -> int:
    """Return the forward FLOPs of one sequence's scores and weighted values, all layers."""
    width = model.query_width + model.value_width
    windowed = min(model.windowed_layers, model.mixers) if model.window else 0
    pairs = (model.mixers - windowed) * attention_pairs(seq, seq, causal=True)
    pairs += windowed * attention_pairs(seq, min(model.window, seq), causal=True)
    return 2 * width * pairs


def scan_flops(model: Decoder) -> int:
    """Return the FLOPs of a token in a state-space layer, scanned in chunks by matrix products."""
    s = model.state_space
    if s is None:
        return 0
    within = _CHUNK * (s.groups * s.state + s.inner)  # causal: half of 2 each
    return within + 4 * s.inner * s.state + 2 * s.convolution * (s.inner + 2 * s.groups * s.state)


_CHUNK = 256  # tokens of a scan's chunk, as Mamba-2 has it


def forward_flops(model: Decoder, batch: int, seq: int) -> int:
    """Return the FLOPs of one forward pass: matrices, attention, logits."""
    tokens = batch * seq
    matrices = 2 * tokens * (model.matrices + model.vocab * model.hidden)
    return matrices + attention_flops(model, batch, seq)


def model_flops(model: Decoder, batch: int, seq: int) -> int:
    """Return the FLOPs of a step without recomputation: backward is twice forward."""
    return 3 * forward_flops(model, batch, seq)
