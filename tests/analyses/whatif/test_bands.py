"""Bands as wide as predictions of their kind turned out to miss."""

import pytest

from htk.analyses.whatif import bands
from htk.analyses.whatif.answer import Answer

TABLE = {
    "trace": {
        "batch": {"n": 120, "q50": 0.8, "q90": 2.0},
        "sharding": {"n": 90, "q50": 0.7, "q90": 3.0},
        "world": {"n": 60, "q50": 0.2, "q90": 0.7},
        "tp": {"n": 3, "q50": 0.1, "q90": 0.2},
    }
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "_table", lambda: TABLE)


def test_the_widest_of_several_edits() -> None:
    assert bands.calibrated(["batch"]) == (0.8, 2.0)
    assert bands.calibrated(["batch", "sharding"]) == (0.8, 3.0)


def test_none_is_narrower_than_stated() -> None:
    assert bands.calibrated(["world"]) == bands.NORMAL


def test_too_little_known() -> None:
    assert bands.calibrated(["tp"]) is None
    assert bands.calibrated(["batch", "host"]) is None
    assert bands.calibrated([]) is None
    assert bands.calibrated(["batch"], "described") is None


def test_an_answer_takes_them() -> None:
    made = Answer((("batch", "64"),), 1000, "trusted", 2000, {"compute": 0.1})
    lo50, hi50, lo90, hi90 = made.bands
    assert (lo90, hi90) == (1637, 2443)  # 2000 · exp(∓0.2)
    assert (lo50, hi50) == (1846, 2167)  # 2000 · exp(∓0.08)
    other = Answer((("host", "2x"),), 1000, "trusted", 2000, {"compute": 0.1})
    assert other.bands[2:] == (1697, 2358)  # 2000 · exp(∓0.1645)
