"""Bands as wide as predictions of their kind turned out to miss."""

import pytest

from htk.analyses.whatif import bands
from htk.analyses.whatif.answer import Answer

TABLE = {
    "trace": {
        "batch": {"n": 120, "q50": 0.5, "q90": 1.2},
        "sharding": {"n": 90, "q50": 0.4, "q90": 2.0},
        "tp": {"n": 3, "q50": 0.1, "q90": 0.2},
    }
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "_table", lambda: TABLE)


def test_the_widest_of_several_edits() -> None:
    assert bands.calibrated(["batch"]) == (0.5, 1.2)
    assert bands.calibrated(["batch", "sharding"]) == (0.5, 2.0)


def test_too_little_known() -> None:
    assert bands.calibrated(["tp"]) is None
    assert bands.calibrated(["batch", "world"]) is None
    assert bands.calibrated([]) is None
    assert bands.calibrated(["batch"], "described") is None


def test_an_answer_takes_them() -> None:
    made = Answer((("batch", "64"),), 1000, "trusted", 2000, {"compute": 0.1})
    lo50, hi50, lo90, hi90 = made.bands
    assert (lo90, hi90) == (1774, 2255)  # 2000 · exp(∓0.12)
    assert (lo50, hi50) == (1902, 2103)  # 2000 · exp(∓0.05)
    other = Answer((("host", "2x"),), 1000, "trusted", 2000, {"compute": 0.1})
    assert other.bands[2:] == (1697, 2358)  # 2000 · exp(∓0.1645)
