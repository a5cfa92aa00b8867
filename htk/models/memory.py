"""Memory of a training step with mixed-precision Adam, per GPU.

Parameters, gradients and optimizer state take 2 + 2 + 12 bytes a parameter (Rajbhandari et al.,
ZeRO, 2020); activations of a layer 34·s·b·h without recomputation and with fused attention, 2·s·b·h
with full recomputation (Korthikanti et al., 2022); logits are held in half and in single precision.
"""

from dataclasses import dataclass

from htk.models.decoder import Decoder

_PARAMETER, _GRADIENT, _OPTIMIZER = 2, 2, 12  # bytes of a parameter
_WHOLE_LAYER, _LAYER_INPUT = 34, 2  # bytes of a token and hidden element
_GATED_LAYER = 40  # SwiGLU keeps two inner tensors of 8/3 h in place of one of 4 h
_LOGITS = 6
_RESERVED = 1_500_000_000  # context, libraries and communication buffers, roughly


@dataclass(frozen=True)
class Memory:
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    reserved: int
    gathered: int = 0  # of the parameters: what is whole for a part of the step only

    @property
    def resident(self) -> int:
        """What stays from step to step, and the buffers of gradients."""
        return self.parameters - self.gathered + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        held = self.parameters + self.gradients + self.optimizer
        return held + self.activations + self.logits + self.reserved


def memory(
    model: Decoder,
    strategy: str,
    shards: int,
    batch: int,
    seq: int,
    *,
    checkpointing: bool = False,
    tensor_parallel: int = 1,
) -> Memory:
    """The peak of a step, on one of `shards` GPUs that share the parameters."""
    parameters = model.parameters // tensor_parallel
    sharded = parameters if strategy == "ddp" else parameters // shards
    units = 2 * (model.layer_parameters // tensor_parallel)  # two gathered at a time
    root = model.root_parameters // tensor_parallel
    gathered, gradients = units + root, sharded + units
    if strategy == "shard_grad_op":
        gathered = parameters
    if strategy == "ddp" or shards == 1:
        gathered, gradients = 0, parameters
    return Memory(
        (sharded + gathered) * _PARAMETER,
        gradients * _GRADIENT,
        sharded * _OPTIMIZER,
        _activations(model, batch * seq, checkpointing, tensor_parallel),
        _LOGITS * batch * seq * model.vocab // tensor_parallel,
        _RESERVED,
        gathered * _PARAMETER,
    )


def layer_activations(model: Decoder, tokens: int, tensor_parallel: int = 1) -> int:
    """Kept for the backward pass of one layer. Ten of its bytes are not split."""
    unsplit = (_GATED_LAYER if model.gated else _WHOLE_LAYER) * tokens * model.hidden
    common = 10 * tokens * model.hidden
    return common + (unsplit - common) // tensor_parallel


def layer_input(model: Decoder, tokens: int) -> int:
    return _LAYER_INPUT * tokens * model.hidden


def _activations(model: Decoder, tokens: int, checkpointing: bool, tensor_parallel: int) -> int:
    layer = layer_activations(model, tokens, tensor_parallel)
    if checkpointing:
        return model.layers * layer_input(model, tokens) + layer
    return model.layers * layer
