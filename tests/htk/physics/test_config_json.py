"""Decoders from config.json, by the parameter counts that their publishers state."""

import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.physics.config_json import read_config

LLAMA = {
    "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
LARGE = {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
         "intermediate_size": 28672}  # fmt: skip
LARGEST = {"num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128,
           "intermediate_size": 53248}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8,
                   "num_experts_per_tok": 2, "sliding_window": None}  # fmt: skip
QWEN = {
    "model_type": "qwen3_moe", "hidden_act": "silu", "num_hidden_layers": 48, "hidden_size": 2048,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_act": "silu", "num_hidden_layers": 61,
    "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257, "activation_function": "gelu_new"}  # fmt: skip
GPT3 = GPT2 | {"n_layer": 96, "n_embd": 12288, "n_head": 96, "n_positions": 2048}
NANO = {
    "model_type": "nemotron_h", "mlp_hidden_act": "relu2", "num_hidden_layers": 52,
    "hybrid_override_pattern": "ME" * 23 + "*" * 6, "hidden_size": 2688, "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 2, "intermediate_size": 1856,
    "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128, "num_experts_per_tok": 6, "mamba_num_heads": 64,
    "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "vocab_size": 131072,
}  # fmt: skip


def written(folder: Path, facts: Any) -> Path:
    path = folder / "config.json"
    path.write_text(facts if isinstance(facts, str) else json.dumps(facts), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("facts", "billions", "active"),
    [
        (LLAMA, 8.030, 8.030),
        (LLAMA | LARGE, 70.554, 70.554),
        (LLAMA | LARGEST, 405.85, 405.85),
        (MIXTRAL, 46.703, 12.88),
        (DEEPSEEK, 671.03, 37.55),
        (QWEN, 30.532, 3.353),
        (GPT2, 0.12444, 0.12444),
        (GPT3, 174.6, 174.6),
        (NANO, 31.58, 3.58),
    ],
)
def test_parameters_are_those_published(
    tmp_path: Path, facts: Any, billions: float, active: float
) -> None:
    model = read_config(written(tmp_path, facts))
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.002)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.002)
    assert read_config(tmp_path) == model  # its folder will do


def test_the_text_part_of_a_model_that_sees(tmp_path: Path) -> None:
    facts = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 1}}
    assert read_config(written(tmp_path, facts)).parameters / 1e9 == pytest.approx(8.03, rel=1e-3)


def test_windows_by_layer(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    facts = LLAMA | {"sliding_window": 128, "layer_types": kinds}
    model = read_config(written(tmp_path, facts))
    assert (model.window, model.windowed_layers) == (128, 16)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "object was expected"),
        ("[" * 100_000, "not JSON"),
        ({"model_type": "bert"}, "not a decoder"),
        ({}, "no hidden_size"),
        (LLAMA | {"hidden_size": "4096"}, "whole number"),
        (LLAMA | {"hidden_size": True}, "whole number"),
        (LLAMA | {"vocab_size": -1}, "whole number"),
        (LLAMA | {"num_hidden_layers": 10**6}, "layers"),
        (LLAMA | {"num_attention_heads": 0}, "make a decoder"),
        (LLAMA | {"num_attention_heads": 31, "num_key_value_heads": 31}, "make a decoder"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "experts"),
        (DEEPSEEK | {"first_k_dense_replace": 99}, "dense"),
        (NANO | {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
    ],
)
def test_what_describes_no_decoder_is_refused_in_one_line(
    tmp_path: Path, facts: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_config(written(tmp_path, facts))
    assert "\n" not in str(caught.value)


def test_no_file_and_one_too_large(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not readable"):
        read_config(tmp_path / "nothing.json")
    with pytest.raises(UsageError, match="too large"):
        read_config(written(tmp_path, " " * (4 << 20) + "{}"))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (LLAMA | {"num_nextn_predict_layers": 1}, {"predictions": 1}),
        (LLAMA, {"predictions": 0, "positions": 0, "window": 0, "biases": None, "kv_heads": 8}),
        (LLAMA | {"max_position_embeddings": 8192}, {"positions": 0, "gated": True}),
        (LLAMA | {"multi_query": True}, {"kv_heads": 1}),
        (LLAMA | {"num_key_value_heads": None}, {"kv_heads": 32}),
        (LLAMA | {"hidden_act": "gelu_new"}, {"gated": False}),
        (LLAMA | {"hidden_act": None, "activation_function": "relu"}, {"gated": False}),
        (LLAMA | {"intermediate_size": None}, {"ffn": 4 * 4096}),
        (LLAMA | {"tie_word_embeddings": None}, {"tied": False}),
        (GPT2, {"positions": 1024, "tied": True, "ffn": 4 * 768, "has_biases": True}),
        (GPT2 | {"n_positions": None}, {"positions": 0}),
        (GPT2 | {"tie_word_embeddings": False}, {"tied": False}),
        (LLAMA | {"model_type": "gpt_oss"}, {"biases": True}),
        (LLAMA | {"model_type": "nemotron"}, {"biases": False, "gated": False}),
        (MIXTRAL | {"num_local_experts": 2}, {"experts": 2, "active_experts": 2}),
        (MIXTRAL, {"ffn": 14336, "dense_layers": 0, "shared_ffn": 0, "expert_input": 0}),
        (MIXTRAL | {"num_local_experts": 1}, {"experts": 1, "active_experts": 1}),
        (QWEN | {"intermediate_size": None}, {"ffn": 768, "dense_ffn": 0}),
        (QWEN | {"shared_expert_intermediate_size": 512}, {"shared_ffn": 512, "dense_ffn": 6144}),
        (DEEPSEEK | {"n_shared_experts": 2}, {"shared_ffn": 2 * 2048, "dense_ffn": 18432}),
        (LLAMA | {"model_type": "mistral", "sliding_window": 4096},
         {"window": 4096, "windowed_layers": 32}),
        (LLAMA | {"model_type": "mistral", "sliding_window": 4096, "use_sliding_window": False},
         {"window": 0, "windowed_layers": 0}),
        (LLAMA | {"sliding_window": 4096}, {"window": 0, "windowed_layers": 0}),
        (LLAMA | {"sliding_window": 64, "layer_types": ["sliding_attention"] * 40},
         {"windowed_layers": 32}),
    ],
)  # fmt: skip
def test_what_single_facts_say(tmp_path: Path, facts: Any, expected: dict[str, Any]) -> None:
    model = read_config(written(tmp_path, facts))
    assert {name: getattr(model, name) for name in expected} == expected


def test_letters_of_a_hybrid(tmp_path: Path) -> None:
    """Three state spaces, two of attention; of three feed-forwards one is dense. A convolution of 4
    unless it is given."""
    model = read_config(written(tmp_path, NANO | {"hybrid_override_pattern": "M*-EM*ME",
                                                  "num_hidden_layers": 8}))  # fmt: skip
    assert (model.mixers, model.feed_forwards, model.dense_layers) == (2, 3, 1)
    assert model.state_space_layers == 3 and model.state_space is not None
    assert model.state_space.convolution == 4
    dense = {"hybrid_override_pattern": "M-M*", "num_hidden_layers": 4, "n_routed_experts": None}
    model = read_config(written(tmp_path, NANO | dense | {"conv_kernel": 3}))
    assert (model.mixers, model.feed_forwards, model.dense_layers) == (1, 1, 0)
    assert model.state_space is not None and model.state_space.convolution == 3


def test_names_are_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA | {"_name_or_path": "meta/\x1bllama"})
    assert read_config(path).name == "meta/llama"
    assert read_config(written(tmp_path, LLAMA | {"_name_or_path": "  "})).name == "llama"
    assert read_config(written(tmp_path, LLAMA | {"_name_or_path": 7})).name == "llama"
    anonymous = {k: v for k, v in LLAMA.items() if k != "model_type"}
    assert read_config(written(tmp_path, anonymous)).name == str(path)[:80]
