"""Models by name have the number of parameters that their names and papers say."""

import pytest

from htk.models.presets import PRESETS, preset

BILLIONS = {
    "llama2-7b": 6.74, "llama2-13b": 13.0, "llama2-70b": 69.0, "llama3-8b": 8.03,
    "llama3-70b": 70.6, "llama3-405b": 406, "mistral-7b": 7.24, "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235, "deepseek-v2": 236, "deepseek-v2-lite": 15.7, "kimi-k2": 1026,
    "gpt-oss-20b": 20.9, "gpt-oss-120b": 117, "gpt3-175b": 175, "nemotron-4-340b": 341,
}  # fmt: skip


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert PRESETS[name].parameters / 1e9 == pytest.approx(BILLIONS[name], rel=0.02)


def test_names_are_found_however_they_are_hyphenated() -> None:
    assert preset("Llama-3-8B") is preset("llama3.1-8b") is PRESETS["llama3-8b"]
    assert preset("DeepSeek-R1") is PRESETS["deepseek-v3"] and preset("llama9-8b") is None
