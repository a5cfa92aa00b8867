"""A measured step tells how fast the host is without the profiler.

Steps repeat every 200, as the host takes so long: its kernels take 10 and 5.
"""

import numpy as np
import pytest

from htk.quantities.graph.build import build_graph
from htk.quantities.graph.replay import replayed_period
from htk.whatif.measured_host import match_measured_step
from htk.whatif.step_model import StepModel, step_model
from tests.htk.quantities.graph.small_step import PERIOD, step_tables


@pytest.fixture(scope="module")
def model() -> StepModel:
    tables = step_tables(lengths=(10, 5))
    return step_model(tables, build_graph(tables))


def period_of(model: StepModel) -> int:
    return replayed_period(model.graph, model.weight, model.wrap_weight)


def test_a_step_no_shorter_than_its_replay_stays(model: StepModel) -> None:
    assert match_measured_step(model, PERIOD, PERIOD) is model


def test_the_replay_takes_what_was_measured(model: StepModel) -> None:
    assert period_of(model) == PERIOD
    matched = match_measured_step(model, PERIOD, 160)
    assert period_of(matched) == pytest.approx(160, abs=2)


def test_kernels_stay_as_long_as_they_were(model: StepModel) -> None:
    matched = match_measured_step(model, PERIOD, 160)
    runs = model.graph.edges("run")
    assert np.array_equal(matched.weight[runs], model.weight[runs])


def test_the_host_is_at_most_four_times_faster(model: StepModel) -> None:
    matched = match_measured_step(model, PERIOD, 1)
    assert period_of(matched) == pytest.approx(PERIOD / 4, abs=4)
