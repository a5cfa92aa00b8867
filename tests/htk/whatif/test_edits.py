"""What-ifs of a small step, worked out on paper, and what must hold of every edit.

The step: the host needs 200 from step to step; kernels `a` 100 and `b` 50 run behind each other.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.errors import UsageError
from htk.faces.cli.commands.whatif import EDIT_HELP
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import all_edits, find_edit
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline
from htk.whatif.sweep import list_bounds, sweep_edits
from tests.htk.quantities.graph.small_step import PERIOD, step_tables


@pytest.fixture(scope="module")
def start() -> Baseline:
    return build_baseline(step_tables(4))


def test_no_edit_changes_nothing(start: Baseline) -> None:
    found = predict_answer(start, [])
    assert found.step_ns == found.measured_ns == PERIOD
    assert found.waterfall == {}


def test_removing_a_kernel_of_a_host_bound_step_wins_its_launch(start: Baseline) -> None:
    assert predict_answer(start, [("replace", "^a$=gone")]).step_ns == PERIOD - 10


def test_a_faster_kernel_of_a_host_bound_step_wins_nothing(start: Baseline) -> None:
    assert predict_answer(start, [("replace", "^a$=1000x")]).step_ns == PERIOD


def test_a_slower_kernel_is_felt_once_the_gpu_is_the_slower_side(start: Baseline) -> None:
    found = predict_answer(start, [("replace", "^a$=0.5x")])  # 200 + 50 on the stream
    assert found.step_ns == 250
    assert found.waterfall == {"compute": 50}


def test_a_faster_host_leaves_what_the_gpu_needs(start: Baseline) -> None:
    assert predict_answer(start, [("host", "2x")]).step_ns == 150  # 100 + 50 on the stream


def test_without_launches_the_gpu_is_what_remains(start: Baseline) -> None:
    assert predict_answer(start, [("graphs", "on")]).step_ns == 150


def test_edits_combine_in_any_order(start: Baseline) -> None:
    edits = [("host", "4x"), ("replace", "^b$=gone")]
    assert predict_answer(start, edits).step_ns == predict_answer(start, edits[::-1]).step_ns == 100


def test_the_anchor_may_be_given(start: Baseline) -> None:
    found = predict_answer(start, [("host", "2x")], measured_ns=400)
    assert found.step_ns == 400 - 50 * 2


def test_bands_hold_the_prediction_and_nest(start: Baseline) -> None:
    found = predict_answer(start, [("replace", "^a$=0.1x")])
    lo50, hi50, lo90, hi90 = found.intervals
    assert found.step_ns is not None
    assert lo90 <= lo50 <= found.step_ns <= hi50 <= hi90  # type: ignore[operator]


def test_the_largest_bound_comes_first(start: Baseline) -> None:
    steps = [a.step_ns or 0 for a in list_bounds(start)]
    assert steps == sorted(steps)


def test_a_step_whose_launches_were_not_recorded_is_refused_without_a_number() -> None:
    found = predict_answer(build_baseline(step_tables(1)), [("host", "2x")])
    assert found.step_ns is None
    assert found.verdict.startswith("refused: ")


def test_a_sweep_tells_of_what_it_cannot(start: Baseline) -> None:
    found = sweep_edits(start, [], [("batch", ["2x", "64"])])
    assert found[0].step_ns == 2 * 150  # ns: below the shortest kernel
    assert "record_shapes" in found[1].verdict


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", "fast"),
        ("host", "0x"),
        ("replace", "x"),
        ("replace", "zzz=2x"),
        ("world", "8"),
        ("sharding", "nonsense"),
        ("bucket", "wide"),
        ("prefetch_depth", "-1"),
        ("split", "thrice"),
        ("gradients", "some"),
        ("overlap", "half"),
        ("network", "speed=2x"),
        ("nonsense", "1"),
    ],
)
def test_what_makes_no_sense_is_said(start: Baseline, name: str, value: str) -> None:
    with pytest.raises(UsageError):
        predict_answer(start, [(name, value)])


def test_one_rank_has_nothing_to_share(start: Baseline) -> None:
    answer = predict_answer(start, [("sharding", "ddp")])
    assert answer.step_ns == start.step_ns
    assert "sharding: one rank shares nothing" in answer.assumptions


def test_the_command_offers_every_edit() -> None:
    assert set(EDIT_HELP) == {e.NAME for e in all_edits()}
    assert all(e.HELP for e in all_edits())


def test_modules_are_called_as_their_edits() -> None:
    """One is imported by its edit's name: by another name none may be found."""
    assert all(find_edit(e.NAME) is e for e in all_edits())
    with pytest.raises(UsageError, match="no what-if 'compiled'; there are"):
        find_edit("compiled")


STAGE = build_baseline(step_tables(4))
FACTORS = st.floats(0.05, 20.0)


@given(FACTORS, FACTORS)
def test_a_faster_kernel_never_makes_a_longer_step(one: float, other: float) -> None:
    slow, fast = sorted((one, other))
    longer = predict_answer(STAGE, [("replace", f"a={slow:.3f}x")]).step_ns
    shorter = predict_answer(STAGE, [("replace", f"a={fast:.3f}x")]).step_ns
    assert longer is not None and shorter is not None and shorter <= longer


@pytest.mark.parametrize(
    "edits",
    [
        [("host", "2x"), ("host", "2x")],
        [("batch", "2x"), ("host", "2x"), ("batch", "0.5x")],
    ],
)
def test_an_edit_is_given_once(start: Baseline, edits: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError, match="is given 2 times"):
        predict_answer(start, edits)


def test_a_sweep_of_an_edit_that_is_fixed_is_refused(start: Baseline) -> None:
    with pytest.raises(UsageError, match="batch is given 2 times"):
        sweep_edits(start, [("batch", "2x")], [("batch", ["2x", "4x"])])


def test_several_kernels_are_replaced(start: Baseline) -> None:
    edits = [("host", "8x"), ("replace", "^a$=2x"), ("replace", "^b$=gone")]
    assert predict_answer(start, edits).step_ns == 50  # half of the 100 of a
