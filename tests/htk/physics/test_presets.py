"""Models by name have the number of parameters that their checkpoints and papers say."""

import pytest

from htk.physics.presets import PRESETS, find_preset

# Sums over the tensors of published checkpoints. The second number is what a checkpoint holds
# beside the sizes that plans need, a layer at a time: norms within attention, biases of routers,
# sinks of attention.
CHECKPOINTS = {
    "llama2-7b": (6_738_415_616, 0),
    "llama2-13b": (13_015_864_320, 0),
    "llama2-34b": (33_743_970_304, 0),
    "llama2-70b": (68_976_648_192, 0),
    "llama3-8b": (8_030_261_248, 0),
    "llama3-70b": (70_553_706_496, 0),
    "llama3-405b": (405_853_388_800, 0),
    "mistral-7b": (7_241_732_096, 0),
    "mixtral-8x7b": (46_702_792_704, 0),
    "mixtral-8x22b": (140_630_071_296, 0),
    "qwen3-8b": (8_190_735_360, 36 * (128 + 128)),
    "qwen3-32b": (32_762_123_264, 64 * (128 + 128)),
    "qwen3-30b-a3b": (30_532_122_624, 48 * (128 + 128)),
    "qwen3-235b-a22b": (235_093_634_560, 94 * (128 + 128)),
    "deepseek-v2": (235_741_434_880, 60 * (1536 + 512)),
    "deepseek-v2-lite": (15_706_484_224, 27 * 512),
    "deepseek-v3": (671_026_419_200, 61 * (1536 + 512) + 58 * 256),
    "kimi-k2": (1_026_408_232_448, 61 * (1536 + 512) + 60 * 384),
    "gpt-oss-20b": (20_914_757_184, 24 * (64 + 32)),
    "gpt-oss-120b": (116_829_156_672, 36 * (64 + 128)),
    "nemotron-3-nano": (31_577_940_288, 23 * 128),
}
# What a token uses, in billions, as the papers and cards say; of gpt-oss without the embedding.
ACTIVE = {
    "mixtral-8x7b": 12.9, "mixtral-8x22b": 39.1, "qwen3-30b-a3b": 3.35, "qwen3-235b-a22b": 22.2,
    "deepseek-v2": 21.4, "deepseek-v3": 37.6, "kimi-k2": 32.9, "gpt-oss-20b": 3.61 + 0.58,
    "gpt-oss-120b": 5.13 + 0.58, "nemotron-3-nano": 3.58, "nemotron-3-super": 12.8,
}  # fmt: skip
# Layers, width and heads of Brown et al. (2020), table 2.1, and of what was trained by that recipe.
GPT3 = {
    "gpt3-126m": (12, 768, 12), "gpt3-5b": (24, 4096, 32), "gpt3-20b": (44, 6144, 48),
    "gpt3-175b": (96, 12288, 96),
}  # fmt: skip
BILLIONS = {
    "nemotron-3-8b": 8.54, "nemotron-22b": 21.3, "nemotron-4-15b": 15.6, "nemotron-4-340b": 341,
    "nemotron-3-super": 120.7,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_parameters_are_those_of_the_checkpoint(name: str) -> None:
    total, beside = CHECKPOINTS[name]
    assert PRESETS[name].parameters == total - beside


@pytest.mark.parametrize("name", ACTIVE)
def test_a_token_uses_as_many_as_published(name: str) -> None:
    assert PRESETS[name].active_parameters / 1e9 == pytest.approx(ACTIVE[name], rel=0.01)


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_by_its_formula(name: str) -> None:
    """Twelve squares of the width a layer, thirteen vectors, two of them norms; 2048 positions."""
    layers, width, heads = GPT3[name]
    model = PRESETS[name]
    within = layers * (12 * width**2 + 13 * width)
    assert model.parameters == within + (51200 + 2048 + 2) * width
    assert (model.heads, model.kv_heads, model.head_dim) == (heads, heads, width // heads)


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert PRESETS[name].parameters / 1e9 == pytest.approx(BILLIONS[name], rel=0.003)


def test_what_parameters_do_not_show() -> None:
    """Tokens predicted beyond the next one, and layers that look back 128 tokens."""
    assert {name: m.predictions for name, m in PRESETS.items() if m.predictions} == {
        "deepseek-v3": 1,
        "nemotron-3-super": 1,
    }
    windows = {n: (m.window, 2 * m.windowed_layers - m.layers) for n, m in PRESETS.items()}
    assert {n for n, (window, _) in windows.items() if window} == {"gpt-oss-20b", "gpt-oss-120b"}
    assert windows["gpt-oss-20b"] == windows["gpt-oss-120b"] == (128, 0), "every second layer"


def test_names_are_found_however_they_are_hyphenated() -> None:
    assert find_preset("Llama-3-8B") is find_preset("llama3.1-8b") is PRESETS["llama3-8b"]
    assert find_preset("DeepSeek-R1") is PRESETS["deepseek-v3"] and find_preset("llama9-8b") is None
