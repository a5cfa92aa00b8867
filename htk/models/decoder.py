"""Decoder-only transformers: their parameters and the work of a training step.

Parameter counts follow the published layouts: LLaMA (rotary positions, gated feed-forward, no
biases, untied output) and GPT-3 (learned positions, biases, the output shares the embedding).
"""

from dataclasses import dataclass, replace
from typing import Any

from htk.errors import UsageError


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

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def expert_parameters(self) -> int:
        """Of one feed-forward, without biases."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_matrices(self) -> int:
        """Weights of one layer that a token is multiplied with, those that choose experts too."""
        attention = 2 * self.hidden * (self.hidden + self.kv_width)
        router = self.hidden * self.experts if self.experts > 1 else 0
        return attention + router + self.active_experts * self.expert_parameters

    @property
    def layer_parameters(self) -> int:
        idle = (self.experts - self.active_experts) * self.expert_parameters
        if self.gated:
            return self.layer_matrices + idle + 2 * self.hidden  # two norms
        biases = 2 * self.hidden + 2 * self.kv_width + self.ffn + self.hidden
        return self.layer_matrices + idle + biases + 4 * self.hidden

    @property
    def root_parameters(self) -> int:
        """What is in no layer: embedding, output, last norm, positions."""
        embedding = self.vocab * self.hidden
        norm = self.hidden if self.gated else 2 * self.hidden
        output = 0 if self.tied else embedding
        return embedding + output + norm + self.positions * self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.root_parameters


PRESETS = {
    d.name: d
    for d in (
        Decoder("llama2-7b", 32, 4096, 32, 32, 11008, 32000),
        Decoder("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
        Decoder("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
        Decoder("llama3-8b", 32, 4096, 32, 8, 14336, 128256),
        Decoder("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
        Decoder("llama3-405b", 126, 16384, 128, 8, 53248, 128256),
        Decoder("mistral-7b", 32, 4096, 32, 8, 14336, 32000),
        Decoder("gpt3-5b", 24, 4096, 32, 32, 16384, 51200, False, True, 2048),
        Decoder("gpt3-126m", 12, 768, 12, 12, 3072, 51200, False, True, 2048),
        Decoder("gpt3-175b", 96, 12288, 96, 96, 49152, 51200, False, True, 2048),
    )
}


def decoder(name: str, **sizes_by_name: Any) -> Decoder:
    """A preset, with what is given in place of its own; any other name needs all of it."""
    if name in PRESETS:
        model = replace(PRESETS[name], **sizes_by_name) if sizes_by_name else PRESETS[name]
    else:
        sizes_by_name.setdefault("kv_heads", sizes_by_name.get("heads", 0))
        try:
            model = Decoder(name, **sizes_by_name)
        except TypeError:
            raise UsageError(
                f"no model {name!r}: there are {', '.join(PRESETS)};"
                " any other wants --layers, --hidden, --heads, --ffn and --vocab"
            ) from None
    sizes = (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn, model.vocab)
    if min(sizes) < 1 or model.hidden % model.heads or model.heads % model.kv_heads:
        raise UsageError(
            f"{model.hidden} hidden, {model.heads} heads and {model.kv_heads} kv heads do not"
            " make a decoder: each must be positive and divide the one before"
        )
    if not 1 <= model.active_experts <= model.experts:
        raise UsageError(
            f"{model.active_experts} active of {model.experts} experts: from 1 to all expected"
        )
    return model


def attention_pairs(queries: int, keys: int, causal: bool) -> int:
    """Query and key pairs that are looked at: Σ_i min(i, keys) where causal (aten, top-left)."""
    if not causal:
        return queries * keys
    full = max(0, queries - keys)
    ramp = min(queries, keys)
    return ramp * (ramp + 1) // 2 + full * keys


def forward_flops(model: Decoder, batch: int, seq: int) -> int:
    """Multiplications and additions of one forward pass: matrices, attention, logits."""
    tokens = batch * seq
    matrices = 2 * tokens * (model.layers * model.layer_matrices + model.vocab * model.hidden)
    attention = 4 * batch * model.hidden * attention_pairs(seq, seq, causal=True)
    return matrices + model.layers * attention


def model_flops(model: Decoder, batch: int, seq: int) -> int:
    """Of a step without recomputation: the backward pass is twice the forward pass."""
    return 3 * forward_flops(model, batch, seq)
