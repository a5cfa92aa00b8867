"""Kernels' lengths through several recordings at several batches."""

import numpy as np
import pyarrow as pa
import pytest

from htk.base.errors import UsageError
from htk.quantities.graph.build import build_graph
from htk.whatif.baseline import build_baseline
from htk.whatif.curves import Curves, Recorded, fit_curves
from htk.whatif.predict import predict_answer
from htk.whatif.step_model import StepModel, step_model
from tests.htk.quantities.graph.small_step import step_tables

# Matrix products a and b: 40,000 and 20,000 at the recorded batch. One recording alone would say
# 77,500 and 37,500 at twice of it; another one holds 50,000 and 37,500.
BASE = (40_000, 20_000)
TWICE = (50_000, 37_500)


def at(lengths: tuple[int, int], period: int = 300_000) -> dict[str, pa.Table]:
    return step_tables(4, lengths, period)


def base() -> StepModel:
    tables = at(BASE)
    return step_model(tables, build_graph(tables))


def test_lengths_go_through_both_recordings() -> None:
    found = fit_curves(base(), 0.0, [(at(TWICE), 2.0)])
    assert found.matched.all()
    assert found.lengths(1.0).tolist() == pytest.approx(list(BASE))
    assert found.lengths(2.0).tolist() == pytest.approx(list(TWICE))


def test_between_and_beyond_them_lengths_lie_on_the_line() -> None:
    found = fit_curves(base(), 0.0, [(at(TWICE), 2.0)])
    assert found.lengths(3.0).tolist() == pytest.approx([60_000, 55_000])
    assert found.lengths(1.5).tolist() == pytest.approx([45_000, 28_750])


def test_a_kernel_never_gets_shorter_with_the_batch() -> None:
    found = fit_curves(base(), 0.0, [(at((30_000, 37_500)), 2.0)])
    assert found.lengths(4.0)[0] == pytest.approx(40_000)


def test_each_further_recording_narrows_the_doubt() -> None:
    one = fit_curves(base(), 0.0, [(at(TWICE), 2.0)])
    two = fit_curves(base(), 0.0, [(at(TWICE), 2.0), (at((90_000, 150_000)), 8.0)])
    assert two.sigma(6.0, 0.1) < one.sigma(6.0, 0.1) < 0.1
    assert one.sigma(2.0, 0.1) == pytest.approx(0.015)


def test_the_step_is_that_of_the_other_recording_at_its_batch() -> None:
    start = build_baseline(at(BASE, 70_000), [(at(TWICE, 100_000), 2.0)])
    found = predict_answer(start, [("batch", "2x")])
    assert found.step_ns == 100_000
    alone = predict_answer(build_baseline(at(BASE, 70_000)), [("batch", "2x")])
    assert alone.step_ns == 77_500 + 37_500
    assert found.sigma < alone.sigma


def test_doubt_about_micro_batches_grows_with_the_distance_to_recorded_counts() -> None:
    """Half of it where a count was recorded, a quarter more a doubling away, at most all."""
    lines = Curves(base(), np.zeros(0), (), counted=(Recorded(1.0, 0, np.zeros(0), 4.0),))
    assert [lines.counted_share(count) for count in (1, 4, 2, 8, 16, 64)] == [
        0.5, 0.5, 0.75, 0.75, 1.0, 1.0
    ]  # fmt: skip
    assert Curves(base(), np.zeros(0), ()).counted_share(4) == 1


def test_two_recordings_of_one_batch_make_no_curve() -> None:
    with pytest.raises(UsageError, match="same batch"):
        fit_curves(base(), 0.0, [(at(TWICE), 1.0)])


def test_a_batch_that_shapes_do_not_tell_must_be_given() -> None:
    with pytest.raises(UsageError, match="PATH@2x"):
        fit_curves(base(), 0.0, [(at(TWICE), None)])


def test_steps_lie_on_the_line_through_those_of_other_numbers_of_micro_batches() -> None:
    found = Curves(base(), np.zeros(0), (), off={2.0: -10.0, 4.0: -40.0})
    assert [found.off_ns(count) for count in (1, 2, 3, 4, 6)] == [0, -10, -25, -40, -70]
    assert Curves(base(), np.zeros(0), ()).off_ns(4) == 0


def test_a_further_recording_leaves_less_doubt_in_the_number_of_micro_batches() -> None:
    other = Recorded(1.0, 100, np.zeros(0), 2.0)
    found = Curves(base(), np.zeros(0), (), (other,))
    assert [found.counted_share(count) for count in (1, 2, 4, 64)] == [
        0.5,
        0.5,
        0.75,
        1,
    ]


def test_of_several_recordings_the_two_round_a_batch_tell() -> None:
    """From 2 to 8 times a grows by 40,000, b by 112,500: at 4 by a third of that. Below the least
    and beyond the largest batch the outermost two tell."""
    found = fit_curves(base(), 0.0, [(at((90_000, 150_000)), 8.0), (at(TWICE), 2.0)])
    assert found.ratios.tolist() == [1, 2, 8]
    expected = {
        0.5: [35_000, 11_250], 1: [40_000, 20_000], 1.5: [45_000, 28_750], 2: [50_000, 37_500],
        4: [50_000 + 40_000 / 3, 75_000], 8: [90_000, 150_000],
        14: [130_000, 262_500],
    }  # fmt: skip
    for ratio, lengths in expected.items():
        assert found.lengths(ratio).tolist() == pytest.approx(lengths), ratio


def test_what_the_fitted_step_misses_between_batches() -> None:
    found = Curves(base(), np.zeros(0), (), missed={2.0: 10.0, 4.0: 50.0, 0.5: -8.0})
    assert [found.missed_ns(r) for r in (0.25, 0.5, 0.75, 1, 1.5, 3, 4, 9)] == [
        -8, -8, -4, 0, 5, 30, 50, 50
    ]  # fmt: skip
    assert Curves(base(), np.zeros(0), ()).missed_ns(3) == 0


def test_a_kernel_that_one_recording_lacks_has_no_curve() -> None:
    lacking = Recorded(2.0, 1, np.array([np.nan, 37_500.0]))
    lines = Curves(base(), np.ones(2), (lacking,))
    assert lines.matched.tolist() == [False, True]
    first, second = lines.lengths(2.0).tolist()
    assert np.isnan(first) and second == pytest.approx(37_500)
    # a third of the time on curves: that share of the doubt is narrowed
    whole = Curves(base(), np.ones(2), (Recorded(2.0, 1, np.array([5e4, 37_500.0])),))
    assert lines.sigma(2.0, 0.1) == pytest.approx(whole.sigma(2.0, 0.1) / 3 + 0.1 * 2 / 3)
