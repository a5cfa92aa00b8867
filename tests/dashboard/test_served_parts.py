"""The first screen and the what-ifs of a server's recording, in a real browser."""

from collections.abc import Iterator
from typing import Any

import pytest

from htk.dashboard.edits import read_chosen_edits
from htk.dashboard.served_parts import parted_headline
from htk.recording.simulate.config import Config
from tests.dashboard.conftest import serving_simulated, settled, until, visiting

_TWICE = 3  # the place of 2x among a slider's marks


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    decoding = Config(
        model="tiny", layers=2, hidden=256, heads=4, ffn=512, vocab=1000, nodes=1, micro_batch=1,
        seq=256, steps=4, seed=2, gpus_per_node=1, decode_requests=8, context=128,
    )  # fmt: skip
    with serving_simulated(decoding, tmp_path_factory.mktemp("served") / "run") as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, served: str) -> Iterator[tuple[Any, list[str]]]:
    yield from visiting(browser, served)


def test_the_first_screen_speaks_of_iterations(page: Any, served: str) -> None:
    page.goto(f"{served}/")
    settled(page)
    shown = page.inner_text("main")
    assert "decode iterations of 8 requests" in page.inner_text("main h1")
    assert "Decode iteration" in page.inner_text("main .tiles")
    assert "How long do a server's iterations take" in shown
    assert "no whole steps" not in shown


def test_sliders_are_those_of_a_server_and_live_in_one_edit(page: Any, served: str) -> None:
    page.goto(f"{served}/whatif?o.serving=kv%3Dfp8")
    settled(page)
    assert page.locator("[aria-label='micro-batch']").count() == 0
    page.locator("[aria-label='requests at once']").focus()
    page.keyboard.press("ArrowRight")
    until(page, "() => location.search.includes('o.serving=requests%3D2x,kv%3Dfp8')")
    page.wait_for_selector("#whatif-answer .tile")
    assert "16 requests of" in page.inner_text("#whatif-answer")


@pytest.mark.parametrize(
    ("controls", "edits"),
    [
        ({"serving.requests": _TWICE, "serving.weights": "fp8"}, "requests=2x,weights=fp8"),
        ({"serving.requests": _TWICE, "serving": "chunk=512"}, "requests=2x,chunk=512"),
        ({"serving.kv": "as recorded", "serving": ""}, ""),
    ],
)
def test_controls_of_a_server_are_one_edit(controls: dict[str, Any], edits: str) -> None:
    said = read_chosen_edits([{"name": name} for name in controls], [*controls.values()])
    assert said.get("serving", "") == edits
    assert not [name for name in said if name.startswith("serving.")]


def test_a_headline_keeps_what_iterations_do_and_how_long_they_take() -> None:
    first, rest = parted_headline("2 decode iterations; 5 ms a token; 9 % gaps; 1 ms at best")
    assert (first, rest) == ("2 decode iterations; 5 ms a token", ["9 % gaps", "1 ms at best"])
