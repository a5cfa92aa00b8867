"""Calls of a step beside measured kernels: a product in one kernel, and the same one in two."""

from pathlib import Path

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.measured_calls import compare_usual, find_measured_calls, mean_sigma
from htk.whatif.step_model import StepModel
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "numSms": 132}
# The fastest products that stas00/ml-engineering measured on an H100 and an A100, in TFLOP/s.
OF_H100, OF_A100 = 794.5, 271.2
PRODUCT_NS = 2 * 4096**3 / (OF_H100 * 1e3)


@pytest.fixture
def model(tmp_path: Path) -> StepModel:
    """Return two products of 4096 by 4096 by 4096, and an activation unlike all measured ones."""
    events: list[Event] = []
    lengths = ([300], [350, 50], [80])
    for k, of_call in enumerate(lengths):
        begin = 10 + 20 * k
        is_product = k < 2
        shapes = [[4096, 4096]] * 2 if is_product else [[8]]
        described = {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * len(shapes)}
        events.append(op("aten::mm" if is_product else "aten::relu", begin, 10, **described))
        for number, length in enumerate(of_call):
            called = begin + 1 + number
            events += [
                launch(called, called),
                kernel(f"k{k}{number}", 1_000 * (k + 1) + 400 * number, length, called),
            ]
    facts = of_rank(0) | {"deviceProperties": [H100]}
    path = write(tmp_path / "t.json", *events, **facts)
    return build_baseline(open_trace(path, OpenOptions(cache=False)).tables).model


def test_a_call_takes_as_long_as_its_kernels_together(model: StepModel) -> None:
    pace = find_measured_calls(model).measure(model.device)
    length = model.lengths().astype(np.float64)
    took = dict(zip(model.graph.activities.name.tolist(), pace.times_of_calls(length), strict=True))
    by_name = {model.graph.activities.names[code]: ns for code, ns in took.items()}
    assert (by_name["k00"], by_name["k10"], by_name["k11"]) == (300_000, 400_000, 400_000)
    assert np.isfinite(pace.typical).sum() == 3, "nothing measured is like the third call"


def test_only_calls_beyond_the_bar_are_slower(model: StepModel) -> None:
    """A product takes 173 us, 300 is 1.7 times that and 400 2.3 times."""
    pace = find_measured_calls(model).measure(model.device)
    length = model.lengths().astype(np.float64)
    assert pace.typical[0] == pytest.approx(PRODUCT_NS, rel=0.06)
    assert [int(pace.find_slower(length, least).sum()) for least in (1.0, 2.0, 3.0)] == [3, 2, 0]


def test_another_gpu_takes_as_much_longer_as_it_was_measured_to(model: StepModel) -> None:
    compared = find_measured_calls(model).compare_gpus(gpu("h100"), gpu("a100-80gb"))
    is_product = np.isfinite(compared.ratio)
    assert compared.ratio[is_product] == pytest.approx([OF_H100 / OF_A100] * 3, rel=0.12)
    assert (compared.sigma[is_product] < 0.1).all()


def test_no_gpu_has_no_pace(model: StepModel) -> None:
    pace = find_measured_calls(model).measure(None)
    assert not pace.find_slower(model.lengths().astype(np.float64), 1.0).any()


def test_a_usual_product_is_as_fast_as_the_fastest() -> None:
    slower = compare_usual("matmul", "bf16", gpu("h100"), gpu("a100-80gb"))
    assert slower == pytest.approx(OF_H100 / OF_A100, rel=0.12)


def test_deviations_weigh_by_time() -> None:
    assert mean_sigma(np.array([0.1, 0.3]), np.array([300.0, 100.0])) == pytest.approx(0.15)
    assert mean_sigma(np.array([0.1]), np.array([0.0])) == 0.0
