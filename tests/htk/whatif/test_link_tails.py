"""The slowest of more links: order statistics by hand, and jobs simulated with uneven links."""

from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest

from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.link_tails import expect_highest, slowest_link
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline
from tests.htk.whatif.simulated_job import step_ns, written

UNEVEN = {"noise": 0.1, "inter_gbps": 25.0, "micro_batch": 2, "steps": 5}


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    return build_baseline(
        open_trace(str(written(tmp_path_factory.mktemp("uneven"), **UNEVEN))).tables
    )


@pytest.mark.parametrize(
    ("draws", "mean", "sigma"),
    [
        (1, 0.0, 1.0),
        (2, 1 / sqrt(pi), sqrt(1 - 1 / pi)),
        (3, 1.5 / sqrt(pi), sqrt(1 + sqrt(3) / (2 * pi) - 9 / (4 * pi))),
    ],
)
def test_the_highest_of_normal_draws(draws: int, mean: float, sigma: float) -> None:
    assert expect_highest(draws) == pytest.approx((mean, sigma), abs=1e-3)


def test_the_highest_of_many_draws_as_by_drawing() -> None:
    drawn = np.random.default_rng(5).normal(size=(20_000, 64)).max(axis=1)
    assert expect_highest(64) == pytest.approx((drawn.mean(), drawn.std()), abs=0.01)


def test_the_spread_of_links_is_that_of_the_job(uneven: Baseline) -> None:
    """Each of two nodes' links is off by 10 %, one sigma: the slower one shows in each call."""
    times = slowest_link(uneven.model, 2, 8)
    expected = np.exp(0.1 * (expect_highest(8)[0] - expect_highest(2)[0]))
    assert times == pytest.approx(expected, abs=0.025)
    assert slowest_link(uneven.model, 2, 2) == 1.0
    fewer, more = (slowest_link(uneven.model, 2, nodes) for nodes in (1, 64))
    assert fewer < 1 < times < more


@pytest.mark.nightly
def test_more_nodes_are_as_slow_as_their_slowest_link(uneven: Baseline, tmp_path: Path) -> None:
    truth = step_ns(written(tmp_path, **UNEVEN, nodes=8, run=1))
    answer = predict_answer(uneven, [("world", "16")])
    assert answer.step_ns == pytest.approx(truth, rel=0.06)  # without: 10 % too short
    assert any("slowest link" in words for words in answer.assumptions)


def test_one_step_tells_no_spread(tmp_path: Path) -> None:
    one = written(tmp_path, **(UNEVEN | {"steps": 1}))
    start = build_baseline(open_trace(str(one)).tables)
    assert slowest_link(start.model, 2, 8) == 1.0


def test_where_ranks_are_not_recorded_waits_tell_instead(tmp_path: Path) -> None:
    some = written(tmp_path, **UNEVEN, ranks_only=(0, 3))
    start = build_baseline(open_trace(str(some)).tables)
    assert slowest_link(start.model, 2, 8) == 1.0
