"""The what-if panel, its widgets set as a hand would."""

from pathlib import Path
from typing import Any

import pytest

import htk
from htk.simulate.config import Config
from htk.simulate.job import simulate

pytest.importorskip("ipywidgets")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    folder: Path = tmp_path_factory.mktemp("panel")
    simulate(Config(model="gpt3-126m", layers=2, gpus_per_node=2, steps=4, noise=0.0), folder)
    left, answer = htk.open(folder).whatif_panel().children
    return {control.description: control for control in left.children}, answer


def test_it_begins_with_what_was_recorded(parts: Any) -> None:
    controls, answer = parts
    assert "recorded" in answer.value and "ms</b>" in answer.value
    assert controls["sharding"].value == "as recorded"


def test_a_choice_predicts_and_taking_it_back_returns(parts: Any) -> None:
    controls, answer = parts
    before = answer.value
    controls["micro-batch"].value = "2x"
    assert "nine of ten" in answer.value and "tokens/s" in answer.value
    controls["communication hidden"].value = True
    both = answer.value
    controls["micro-batch"].value = "as recorded"
    assert answer.value not in (before, both)
    controls["communication hidden"].value = False
    assert answer.value == before


def test_a_replay_that_is_not_trusted_says_why() -> None:
    _, answer = htk.open("sample").sel(steps=10).whatif_panel().children
    assert "indicative: only one whole step" in answer.value
