"""Which fused implementation there is of a chain of operators, by their names."""

import re
from collections.abc import Sequence

COMPILED = "torch.compile"
# Words that operators of a chain must all be named with, in any order, and what does them at once.
_KNOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (("_foreach_", "addc|lerp"), "optimizer with fused=True; apex FusedAdam"),
    (("_foreach_",), "optimizer or gradient clipping with fused=True"),
    (("addcmul_", "addcdiv_"), "optimizer with fused=True, at least foreach=True"),
    (("nll_loss|log_softmax",), "liger cross entropy, with the last product too; apex xentropy"),
    (("pow|square|mul", "mean", "rsqrt"), "torch.nn.RMSNorm; liger RMSNorm; apex FusedRMSNorm"),
    (("var|pow", "mean", "sqrt|rsqrt", "sub|div"), "torch.nn.LayerNorm; apex FusedLayerNorm"),
    (("layer_norm|rms_?norm", "add"), "liger fused add and norm; torch.compile"),
    (("batch_norm", "add|clamp|relu|threshold"), "apex BatchNorm with ReLU; torch.compile"),
    (("neg", "cat", "mul"), "liger RoPE; apex fused_rope"),
    (("silu", "mul"), "liger SwiGLU; torch.compile"),
    (("gelu", "mul"), "liger GEGLU; torch.compile"),
    (("tanh", "pow|mul"), "F.gelu(approximate='tanh'); liger GEGLU"),
)  # fmt: skip
_SCORES = re.compile("bmm|matmul")


def fused_implementation(operators: Sequence[str], before: str, after: str) -> str:
    """Return what does a chain of operators at once; `before`, `after`: the operators round it."""
    if any("softmax" in name for name in operators) and (
        _SCORES.search(before) and _SCORES.search(after)
    ):
        return "F.scaled_dot_product_attention with both products (flash attention in 16 bit)"
    for words, implementation in _KNOWN:
        if all(any(re.search(word, name) for name in operators) for word in words):
            return implementation
    return COMPILED
