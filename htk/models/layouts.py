"""Memory of a stage of a job with tensor, pipeline and data parallelism, per GPU.

The optimizer's state is spread over data-parallel ranks. Of the stages the first holds the most
micro-batches in flight, the last the logits; the larger of the two counts. Bytes of activations
after Korthikanti et al. (2022): 34·s·b·h of a layer, 40 with a gated feed-forward, ten of which are
split by sequence parallelism alone; attention that keeps its scores adds 5·a·s²·b; norms that are
not fused keep their inputs in single precision.
"""

from dataclasses import dataclass

from htk.models.decoder import Decoder

_PARAMETER, _GRADIENT, _OPTIMIZER = 2, 2, 12  # bytes of a parameter
_LAYER, _GATED_LAYER, _COMMON, _INPUT = 34, 40, 10, 2  # bytes of a token and hidden element
_SCORES = 5  # bytes of a head and pair of tokens
_NORMS = 8  # two inputs in single precision
_LOGITS = 14  # in half and single precision, their softmax and gradients
FRAGMENTATION, RESERVED = 1.05, 5e9  # context, libraries, communication buffers


@dataclass(frozen=True)
class Layout:
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    seq: int = 2048
    micro_batches: int = 1  # of a step
    checkpointing: bool = False
    sequence_parallel: bool = False
    flash: bool = True
    fused_norms: bool = True
    split_logits: bool = True  # over tensor-parallel ranks


def held(model: Decoder, layout: Layout) -> float:
    """Bytes that the fullest stage holds, before what fragmentation and libraries take."""
    at_once = min(layout.pipeline, layout.micro_batches)
    split = layout.tensor if layout.split_logits else 1
    logits = _LOGITS * layout.micro_batch * layout.seq * model.vocab / split
    first, single = _activations(model, layout, at_once), _activations(model, layout, 1)
    if layout.pipeline == 1:
        return _state(model, layout) + first + logits
    return _state(model, layout) + max(first, single + logits)


def peak_bytes(
    model: Decoder,
    layout: Layout,
    fragmentation: float = FRAGMENTATION,
    reserved: float = RESERVED,
) -> float:
    return held(model, layout) * fragmentation + reserved


def _state(model: Decoder, layout: Layout) -> float:
    """Parameters, gradients and the optimizer's state of a stage: its layers and an embedding."""
    layers = model.layers * model.layer_parameters / layout.pipeline
    ends = model.root_parameters if layout.pipeline == 1 else model.vocab * model.hidden
    each = _PARAMETER + _GRADIENT + _OPTIMIZER / layout.data
    return (layers + ends) / layout.tensor * each


def _activations(model: Decoder, layout: Layout, at_once: int) -> float:
    tokens = layout.micro_batch * layout.seq
    element = tokens * model.hidden
    common = _COMMON + (0 if layout.fused_norms else _NORMS)
    shared = layout.tensor if layout.sequence_parallel else 1
    scores = 0 if layout.flash else _SCORES * model.heads * layout.seq / model.hidden
    split = (_GATED_LAYER if model.gated else _LAYER) - _COMMON + scores
    layer = element * (common / shared + split / layout.tensor)
    layers = model.layers / layout.pipeline
    if layout.checkpointing:
        return layers * at_once * _INPUT * element + layer
    return layers * at_once * layer
