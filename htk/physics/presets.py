"""Decoders by name, in their published sizes."""

import re
from dataclasses import replace
from typing import Any

from htk.base.errors import UsageError
from htk.physics.decoder import Decoder, LatentAttention, StateSpace, check_decoder

_DEEPSEEK = LatentAttention(1536, 512, 128, 64, 128)
_WINDOW = 128  # of gpt-oss, in every second layer

PRESETS = {
    d.name: d
    for d in (
        Decoder("llama2-7b", 32, 4096, 32, 32, 11008, 32000),
        Decoder("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
        Decoder("llama2-34b", 48, 8192, 64, 8, 22016, 32000),
        Decoder("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
        Decoder("llama3-8b", 32, 4096, 32, 8, 14336, 128256),
        Decoder("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
        Decoder("llama3-405b", 126, 16384, 128, 8, 53248, 128256),
        Decoder("mistral-7b", 32, 4096, 32, 8, 14336, 32000),
        Decoder("mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, experts=8, active_experts=2),
        Decoder("mixtral-8x22b", 56, 6144, 48, 8, 16384, 32768, experts=8, active_experts=2),
        Decoder(
            "qwen3-30b-a3b", 48, 2048, 32, 4, 768, 151936,
            experts=128, active_experts=8, head_size=128,
        ),
        Decoder(
            "qwen3-235b-a22b", 94, 4096, 64, 4, 1536, 151936,
            experts=128, active_experts=8, head_size=128,
        ),
        Decoder("qwen3-8b", 36, 4096, 32, 8, 12288, 151936, head_size=128),
        Decoder("qwen3-32b", 64, 5120, 64, 8, 25600, 151936, head_size=128),
        Decoder(
            "deepseek-v2", 60, 5120, 128, 128, 1536, 102400, experts=160, active_experts=6,
            shared_ffn=3072, dense_layers=1, dense_ffn=12288, latent=_DEEPSEEK,
        ),
        Decoder(
            "deepseek-v2-lite", 27, 2048, 16, 16, 1408, 102400, experts=64, active_experts=6,
            shared_ffn=2816, dense_layers=1, dense_ffn=10944,
            latent=LatentAttention(0, 512, 128, 64, 128),
        ),
        Decoder(
            "deepseek-v3", 61, 7168, 128, 128, 2048, 129280, experts=256, active_experts=8,
            shared_ffn=2048, dense_layers=3, dense_ffn=18432, latent=_DEEPSEEK, predictions=1,
        ),
        Decoder(
            "kimi-k2", 61, 7168, 64, 64, 2048, 163840, experts=384, active_experts=8,
            shared_ffn=2048, dense_layers=1, dense_ffn=18432, latent=_DEEPSEEK,
        ),
        Decoder(
            "gpt-oss-20b", 24, 2880, 64, 8, 2880, 201088, experts=32, active_experts=4,
            head_size=64, biases=True, window=_WINDOW, windowed_layers=12,
        ),
        Decoder(
            "gpt-oss-120b", 36, 2880, 64, 8, 2880, 201088, experts=128, active_experts=4,
            head_size=64, biases=True, window=_WINDOW, windowed_layers=18,
        ),
        Decoder("gpt3-126m", 12, 768, 12, 12, 3072, 51200, False, True, 2048),
        Decoder("gpt3-5b", 24, 4096, 32, 32, 16384, 51200, False, True, 2048),
        Decoder("gpt3-20b", 44, 6144, 48, 48, 24576, 51200, False, True, 2048),
        Decoder("gpt3-175b", 96, 12288, 96, 96, 49152, 51200, False, True, 2048),
        Decoder("nemotron-3-8b", 32, 4096, 32, 32, 16384, 256000, False, biases=False),
        Decoder("nemotron-22b", 40, 6144, 48, 48, 24576, 256000, False, biases=False),
        Decoder("nemotron-4-15b", 32, 6144, 48, 8, 24576, 256000, False, biases=False),
        Decoder("nemotron-4-340b", 96, 18432, 96, 8, 73728, 256000, False, biases=False),
        Decoder(
            "nemotron-3-nano", 52, 2688, 32, 2, 1856, 131072, False, biases=False,
            experts=128, active_experts=6, head_size=128, shared_ffn=3712,
            state_space=StateSpace(64, 64, 8, 128), attention_layers=6, ffn_layers=23,
        ),
        Decoder(
            "nemotron-3-super", 88, 4096, 32, 2, 2688, 131072, False, biases=False,
            experts=512, active_experts=22, head_size=128, shared_ffn=5376, expert_input=1024,
            predictions=1,
            state_space=StateSpace(128, 64, 8, 128), attention_layers=8, ffn_layers=40,
        ),
    )
}  # fmt: skip

# Other names that the same sizes go by.
_ALSO = {
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b",
    "llama3.3-70b": "llama3-70b",
    "nemotron-8b": "nemotron-3-8b",
    "nemotron-340b": "nemotron-4-340b",
    "nemotron-15b": "nemotron-4-15b",
    "nemotron-3-nano-30b-a3b": "nemotron-3-nano",
    "nemotron-3-super-120b-a12b": "nemotron-3-super",
    "deepseek-r1": "deepseek-v3",
}


def find_preset(name: str) -> Decoder | None:
    """Return the model of that name, however it is hyphenated; None: there is no such."""
    return _by_letters.get(_keep_letters(name))


def _keep_letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_by_letters = {_keep_letters(name): model for name, model in PRESETS.items()} | {
    _keep_letters(other): PRESETS[name] for other, name in _ALSO.items()
}


def decoder(name: str, **sizes_by_name: Any) -> Decoder:
    """Return a preset, with the given sizes in place of its own; any other name needs all sizes,
    and is gated only where `gated` says so."""
    known_model = find_preset(name)
    if known_model is not None:
        model = replace(known_model, **sizes_by_name) if sizes_by_name else known_model
    else:
        sizes_by_name.setdefault("kv_heads", sizes_by_name.get("heads", 0))
        sizes_by_name.setdefault("gated", False)
        try:
            model = Decoder(name, **sizes_by_name)
        except TypeError:
            raise UsageError(_describe_unknown(name)) from None
    return check_decoder(model)


def _describe_unknown(name: str) -> str:
    return (
        f"no model {name!r}: there are {', '.join(PRESETS)};"
        " any other wants --layers, --hidden, --heads, --ffn and --vocab, or a config.json"
    )
