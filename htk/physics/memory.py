"""Memory of a training step on the fullest GPU: one model for plans, what-ifs and the scorecard.

State: 16 bytes a parameter in mixed precision with Adam (Rajbhandari et al., ZeRO, 2020), and what
each strategy holds whole. Activations: the tensors that a layer keeps for its backward pass
(Korthikanti et al., 2022), counted from its widths. Of a pipeline's stages the first holds the most
micro-batches, the last the logits; the larger of the two counts. What the allocator loses, what
libraries and communicators take, and how far such figures miss were fitted to published jobs;
docs/scorecard.md says how well they hold on sources left out.
"""

import math
from dataclasses import dataclass, replace

from htk.physics.decoder import Decoder

CHECKPOINTING = ("none", "selective", "full")
# Bytes of a trained parameter beside itself and its gradient. Adam in mixed precision keeps a copy
# and two moments in single precision; 8-bit Adam the copy and a byte for each moment (Dettmers et
# al., 2022); GaLore the copy, and moments of a quarter of the width (Zhao et al., 2024).
OPTIMIZERS = {"adam": 12.0, "adam-8bit": 6.0, "adam-bf16": 4.0, "galore": 6.0, "sgd": 8.0,
              "none": 0.0}  # fmt: skip

_PARAMETER, _GRADIENT, _OPTIMIZER = 2, 2, 12  # bytes of a parameter
_SINGLE = 4  # bytes of an element in single precision
_ELEMENT = 2  # bytes of an activation
_NORMS = 12  # bytes an element: two norms that are not fused keep copies in single precision
_SCORES = 5  # bytes of a head and pair of tokens: scores, softmax and its mask
_GATHERED = 4  # bytes an element: sequence parallelism gathers the inputs of two products
_LOGITS = 14  # bytes: in half and single precision, their softmax and gradients
_LOGITS_IN_PLACE = 4  # bytes: in half precision with the gradients in their place, and a copy
_PIECES = 4  # bytes of logits that ranks gather: the pieces, forward and backward
_UNITS = 2  # layers of FSDP that are whole at a time

FRAGMENTATION = 0.06  # of what is held
CONTEXT = 1_000_000_000  # context and libraries
COMMUNICATOR = 2_500_000_000  # of each kind of group: its buffers, and what goes with them
SIGMA = 0.1  # of the logarithm of the peak
_LOGISTIC = math.sqrt(3) / math.pi  # scale of a logistic distribution over its standard deviation


@dataclass(frozen=True)
class ModelSize:
    """The sizes of a model that decide its memory. Widths are in elements of a token."""

    layers: int
    layer_parameters: float
    root_parameters: float  # in no layer
    embedding_parameters: float  # of those, what the first or last stage of a pipeline holds
    hidden: int
    heads: int
    outer_width: float  # kept outside a layer's products, and not split by tensor parallelism
    inner_width: float  # kept between them, and split
    product_width: float  # what a layer's products give
    vocab: int
    expert_parameters: float = 0.0  # of a layer's: what expert parallelism spreads
    product_input: float = 0.0  # of the inner width: what goes into the last product
    gate_width: float = 0.0  # of the inner width: activated gates


@dataclass(frozen=True)
class Layout:
    """How a step is spread over GPUs, and what it keeps for the backward pass."""

    strategy: str = "full_shard"  # ddp, zero1, zero2, shard_grad_op, full_shard, hybrid_shard
    shards: int = 1  # ranks that share parameters, gradients or the optimizer's state
    replicas: int = 1  # of such a group
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1  # of the data-parallel ranks: those that experts are spread over
    micro_batch: float = 1
    seq: float = 2048
    micro_batches: int = 1  # of a step
    checkpointing: str = "none"  # selective: every second product's result and attention are kept
    sequence_parallel: bool = False
    flash: bool = True  # attention that does not keep its scores
    fused_norms: bool = True
    fused_gates: bool = False  # the activated gate is computed again, not kept
    split_logits: bool = True  # over tensor-parallel ranks
    fused_loss: bool = False  # one kernel, which leaves the gradients where the logits were
    ahead: int = 1  # units that are gathered before the one that computes is done
    virtual: int = 1  # chunks of layers that a stage of the pipeline holds
    expert_tensor: int = 0  # ranks that share each expert; 0: as other products
    parameter_bytes: float = _PARAMETER
    gradient_bytes: float = _GRADIENT
    optimizer_bytes: float = _OPTIMIZER
    trained: float = 1.0  # share of the parameters that have gradients
    element_bytes: float = _ELEMENT  # of an activation
    saved_bytes: float = _ELEMENT  # of an element that goes into a product, as it is kept
    offload_optimizer: bool = False  # to the host's memory
    offload_activations: bool = False

    @property
    def tokens(self) -> float:
        """Return the tokens of a micro-batch on a rank."""
        return self.micro_batch * self.seq / self.context

    @property
    def communicators(self) -> int:
        """The number of kinds of groups that the rank communicates in."""
        ways = (self.shards, self.replicas, self.tensor, self.pipeline, self.context, self.expert)
        return sum(ranks > 1 for ranks in ways)


@dataclass(frozen=True)
class Memory:
    """Bytes on a GPU at the peak of a step."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    reserved: float  # context, libraries, communicators
    gathered: float = 0.0  # of the parameters: what is whole for a part of the step only
    running: float = 0.0  # of what is gathered: layers, each while it runs
    buffers: float = 0.0  # of the gradients: what is whole until it is scattered
    left: float = 0.0  # blocks of what was needed at another time, which the allocator keeps

    @property
    def resident(self) -> float:
        """Return the bytes that stay from step to step, with the buffers of gradients."""
        return self.state - self.gathered

    @property
    def state(self) -> float:
        return self.parameters + self.gradients + self.optimizer

    @property
    def held(self) -> float:
        """Return the bytes of all tensors."""
        return self.state + self.activations + self.logits

    @property
    def allocated(self) -> float:
        """Return the bytes that the framework's allocator takes from the GPU for them."""
        return add_allocator_share(self.held + self.left)

    @property
    def total(self) -> float:
        return self.allocated + self.reserved


def model_size(model: Decoder) -> ModelSize:
    """Return the sizes of a model that decide its memory.

    For each expert that a token takes, its results are kept, with a copy of what goes in and
    comes out.
    """
    moe = model.moe_layers / model.layers  # of the layers
    routed = model.active_experts if model.experts > 1 else 0
    ffn = moe * (routed * model.ffn + model.shared_ffn)
    ffn += (model.feed_forwards - model.moe_layers) / model.layers * (model.dense_ffn or model.ffn)
    outer, inner, products = layer_widths(
        model.hidden, model.kv_width, ffn, model.gated, model.query_width, model.value_width
    )
    copies = moe * routed * (model.hidden + (model.expert_input or model.hidden))
    if model.state_space:  # other mixers in the place of attention
        space = model.state_space_layers / model.layers
        inner += space * (2 * model.state_space.projected + 3 * model.state_space.inner)
        inner -= (1 - model.mixers / model.layers) * (2 * model.query_width + 2 * model.kv_width)
        outer /= 2  # a norm for each layer
    gate_width = ffn if model.gated else 0.0
    return ModelSize(
        model.layers,
        model.layer_parameters,
        model.root_parameters,
        model.vocab * model.hidden,
        model.hidden,
        model.heads,
        outer,
        inner + copies,
        products + max(moe * routed - 1, 0) * model.hidden,
        model.vocab,
        moe * model.experts * model.expert_parameters,
        ffn,
        gate_width,
    )


def layer_widths(
    hidden: float,
    kv_width: float,
    ffn: float,
    gated: bool,
    query_width: float | None = None,
    value_width: float | None = None,
) -> tuple[float, float, float]:
    """Return what a layer keeps outside and between its products, and what they give, in elements
    of a token.

    Outside lie two norms' inputs and results, and of layers that are not gated, which drop out, two
    masks of a byte. Between lie queries, keys, values and attention's result; of a gated
    feed-forward both its ways, the activated gate and their product, else what goes into and comes
    out of the activation.
    """
    outer = 4 * hidden if gated else 5 * hidden
    projected = (query_width or hidden) + 2 * kv_width
    inner = projected + (value_width or hidden) + (4 if gated else 2) * ffn
    return outer, inner, projected + hidden + (2 if gated else 1) * ffn + hidden


def compute_peak_memory(size: ModelSize, layout: Layout) -> Memory:
    """Return what the fullest GPU holds at the peak of a step."""
    if layout.pipeline == 1:
        return stage_memory(size, layout, 0)
    first = stage_memory(size, layout, 0)
    last = stage_memory(size, layout, layout.pipeline - 1)
    return first if first.total > last.total else last


def stage_memory(size: ModelSize, layout: Layout, stage: int) -> Memory:
    """Return what a GPU of a stage of the pipeline holds at the peak of a step."""
    last = stage == layout.pipeline - 1
    state = _compute_state(size, layout, ends=stage == 0 or last)
    each = kept_of_layer(size, layout) * size.layers / layout.pipeline
    working = 0.0 if layout.checkpointing == "none" else whole_layer(size, layout)
    if layout.offload_activations:
        each = 0.0
        working = whole_layer(size, layout)
    if layout.tensor > 1 and layout.sequence_parallel:
        working += _GATHERED * layout.tokens * size.hidden
    logits = logits_memory(size, layout) if last else 0.0
    reserved = CONTEXT + COMMUNICATOR * layout.communicators
    held = each * in_flight(layout, stage)
    if logits - state.running >= working:  # no layer is gathered while the loss is computed
        state = replace(
            state,
            parameters=state.parameters - state.running,
            gathered=state.gathered - state.running,
        )
    else:  # logits are gone when the first layer runs again
        logits = min(logits, working)
    beside = max(working - logits, 0.0)
    return replace(
        state,
        activations=held + beside,
        logits=logits,
        reserved=reserved,
        left=working - beside,
    )


def in_flight(layout: Layout, stage: int) -> float:
    """Return how many micro-batches' activations a stage holds at once, at most."""
    after = layout.pipeline - 1 - stage
    if layout.virtual == 1:
        return min(after + 1, layout.micro_batches)
    chunks = 2 * after + (layout.virtual - 1) * layout.pipeline + 1
    return min(chunks / layout.virtual, layout.micro_batches)


def add_allocator_share(held: float) -> float:
    """Return what an allocator takes for what tensors hold."""
    return held * (1 + FRAGMENTATION)


def p_oom(peak: float, capacity: float, sigma: float = SIGMA) -> float:
    """Return the probability that a step does not fit; `peak` with what libraries take.

    By a logistic distribution: most peaks are missed by little, a few by much.
    """
    over = math.log(max(peak, 1.0) / max(capacity, 1.0)) / (_LOGISTIC * sigma)
    return (1 + math.tanh(over / 2)) / 2


def layer_input(size: ModelSize, layout: Layout) -> float:
    """Return the bytes of what goes into a layer."""
    shared = layout.tensor if layout.sequence_parallel else 1
    return layout.element_bytes * layout.tokens * size.hidden / shared


def whole_layer(size: ModelSize, layout: Layout) -> float:
    """Return the bytes that a layer keeps without recomputation."""
    shared = layout.tensor if layout.sequence_parallel else 1
    element = layout.element_bytes
    outer = element * size.outer_width + (0 if layout.fused_norms else _NORMS * size.hidden)
    outer -= (element - layout.saved_bytes) * 2 * size.hidden  # what the norms give
    scores = 0.0 if layout.flash else _SCORES * size.heads * layout.seq / layout.context
    inner = element * size.inner_width + scores
    inner -= (element - layout.saved_bytes) * size.product_input
    if layout.fused_gates:
        inner -= element * size.gate_width
    return layout.tokens * (outer / shared + inner / layout.tensor)


def kept_of_layer(size: ModelSize, layout: Layout) -> float:
    """Return the bytes that a layer keeps from its forward to its backward pass."""
    if layout.checkpointing == "none":
        return whole_layer(size, layout)
    into = layer_input(size, layout)
    if layout.checkpointing == "full":
        return into
    results = size.hidden + size.product_width / 2
    return into + layout.element_bytes * layout.tokens * results / layout.tensor


def logits_memory(size: ModelSize, layout: Layout) -> float:
    """Return the bytes of logits, their softmax and gradients, at their most."""
    return _count_logit_bytes(layout) * layout.tokens * size.vocab


def _count_logit_bytes(layout: Layout) -> float:
    """Return the bytes of a token and entry of the vocabulary."""
    entry: float = _LOGITS_IN_PLACE if layout.fused_loss else _LOGITS
    entry += layout.element_bytes - _ELEMENT  # the logits themselves; the rest is single already
    if layout.tensor == 1:
        return entry
    return entry / layout.tensor if layout.split_logits else entry + _PIECES


def _compute_state(size: ModelSize, layout: Layout, ends: bool) -> Memory:
    """Return a stage's parameters, gradients and optimizer state; `ends`: with the embedding."""
    beside = size.root_parameters if layout.pipeline == 1 else size.embedding_parameters
    beside = beside if ends else 0.0
    experts = size.expert_parameters / layout.expert / (layout.expert_tensor or layout.tensor)
    layer = (size.layer_parameters - size.expert_parameters) / layout.tensor + experts
    layers = size.layers / layout.pipeline
    every = (layers * size.layer_parameters + beside) / layout.tensor
    own = layers * layer + beside / layout.tensor
    units = min(_UNITS * layer, own)
    unsharded = layout.strategy == "ddp" or layout.shards == 1
    part = own if unsharded else every / layout.shards
    parameters, gradients, copied = part, part, 0.0
    gathered = running = buffers = 0.0
    if layout.strategy in ("zero1", "zero2") and not unsharded:  # the shard of gradients is copied
        parameters, copied = own, part
        if layout.strategy == "zero1":
            gradients = own
        else:
            buffers = units
    elif not unsharded:
        if layout.pipeline > 1:  # whole from the first micro-batch to the last
            gathered, buffers = own, own * _SINGLE / _GRADIENT
        else:
            gathered, buffers = own, units
            if layout.strategy != "shard_grad_op":
                running = min((1 + layout.ahead) * layer, own)
                gathered = running + beside / layout.tensor
    optimizer = layout.optimizer_bytes * part + _SINGLE * copied
    return Memory(
        parameters=layout.parameter_bytes * (parameters + gathered),
        gradients=layout.gradient_bytes * layout.trained * (gradients + buffers),
        optimizer=0.0 if layout.offload_optimizer else layout.trained * optimizer,
        activations=0.0,
        logits=0.0,
        reserved=0.0,
        gathered=layout.parameter_bytes * gathered,
        running=layout.parameter_bytes * running,
        buffers=layout.gradient_bytes * layout.trained * buffers,
    )
