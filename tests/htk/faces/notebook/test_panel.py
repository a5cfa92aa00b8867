"""The what-if panel, its widgets set as a hand would."""

import re
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from tests.server_recording import write_server

pytest.importorskip("ipywidgets")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("panel")
    simulate_job(Config(model="gpt3-126m", layers=2, gpus_per_node=2, steps=4, noise=0.0), folder)
    return htk.open(folder)


@pytest.fixture(scope="module")
def parts(trace: Any) -> tuple[dict[str, Any], Any]:
    left, answer = trace.whatif_panel().children
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


def test_at_rest_each_remedy_is_a_bar_of_what_it_saves(trace: Any) -> None:
    """Bars from zero, as long as the saving; the line through each spans its 90 % interval."""
    _, answer = trace.whatif_panel().children
    rows = [r for r in htk.whatif(trace).run().to_pylist() if r["step_time_ns"] is not None]
    rows.sort(key=lambda row: row["step_time_ns"])
    ends = ("step_time_ns", "step_time_ns_lo90", "step_time_ns_hi90")
    saved = [[row["measured_step_time_ns"] - row[end] for end in ends] for row in rows]
    low = min(0, *(ns for own in saved for ns in own))
    span = max(0, *(ns for own in saved for ns in own)) - low
    places = re.findall(r"left:([\d.]+)%;width:([\d.]+)%", answer.value)
    drawn = [tuple(map(float, place)) for place in places]
    assert len(rows) >= 4 and len(drawn) == 2 * len(rows)
    for (best, most, least), bar, line in zip(saved, drawn[::2], drawn[1::2], strict=True):
        share = [100 * (ns - low) / span for ns in (min(best, 0), least, most)]
        assert bar == pytest.approx((share[0], 100 * abs(best) / span), abs=0.06)
        assert line == pytest.approx((share[1], share[2] - share[1]), abs=0.06)


def test_a_servers_panel_changes_how_it_serves(tmp_path: Path) -> None:
    """Settings are one edit; twice the requests save what each then takes less."""
    trace = htk.open(write_server(tmp_path / "rank0.json").parent)
    left, answer = trace.whatif_panel().children
    controls = {control.description: control for control in left.children}
    assert not {"micro-batch", "sharding"} & {*controls}
    assert "twice the requests at once" in answer.value
    controls["requests at once"].value = "2x"
    controls["KV cache"].value = "fp8"
    row = trace.whatif().serving(requests="2x", kv="fp8").run().to_pylist()[0]
    assert f"{row['tokens_per_s']:,.0f} tokens/s" in answer.value
