"""What requests take in a server's cache of keys and values.

Grouped-query attention keeps keys and values of its few heads, spread over tensor-parallel GPUs
until each has one; latent attention keeps one narrow vector, which each of them holds whole
(DeepSeek-V2, 2024). Layers with a window keep no more than that; state spaces keep a state of a
constant size.
"""

from htk.physics.decoder import Decoder

_STATE_BYTES = 4  # of an element of a state space's state, kept in single precision


def token_bytes(model: Decoder, element_bytes: float, tensor: int = 1) -> float:
    """Return what a token takes on each GPU, of all layers; windows left out of account."""
    return model.mixers * _layer_bytes(model, element_bytes, tensor)


def request_bytes(model: Decoder, tokens: float, element_bytes: float, tensor: int = 1) -> float:
    """Return what a request of so many tokens takes on each GPU, of all layers."""
    layer = _layer_bytes(model, element_bytes, tensor)
    return layer * kept_tokens(model, tokens) + _state_bytes(model) / tensor


def kept_tokens(model: Decoder, tokens: float) -> float:
    """Return the tokens that a request keeps, or looks at, summed over layers."""
    windowed = min(model.windowed_layers, model.mixers) if model.window else 0
    return (model.mixers - windowed) * tokens + windowed * min(tokens, model.window)


def _layer_bytes(model: Decoder, element_bytes: float, tensor: int) -> float:
    if model.latent is not None:
        return element_bytes * (model.latent.kv_rank + model.latent.rope_dim)
    heads = -(-model.kv_heads // tensor)  # each GPU has one at least: then they are repeated
    return 2 * element_bytes * heads * model.head_dim


def _state_bytes(model: Decoder) -> float:
    space = model.state_space
    if space is None:
        return 0.0
    channels = space.inner + 2 * space.groups * space.state
    own = _STATE_BYTES * space.inner * space.state + 2 * (space.convolution - 1) * channels
    return model.state_space_layers * own
