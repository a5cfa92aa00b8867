"""What must hold of intervals of several edits, on the sample and on a simulated job."""

import math
from itertools import combinations
from pathlib import Path

import pytest

import htk
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.edited_step import apply_edits, order_edits
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline
from htk.whatif.step_model import StepModel
from htk.whatif.uncertainty import at_least
from tests.htk.whatif.small_step_model import Act, comm, small_model

EDITS = (
    ("batch", "4x"),
    ("batch", "0.5x"),
    ("network", "bandwidth=0.1x"),
    ("network", "bandwidth=8x"),
    ("host", "4x"),
    ("host", "0.25x"),
    ("replace", "gemm|attention=3x"),
    ("replace", "elementwise=fused"),
    ("precision", "fp8"),
    ("world", "16"),
)
NOTHING = (("batch", "1x"), ("network", "bandwidth=1x"), ("host", "1x"), ("hardware", "a100-80gb"))


@pytest.fixture(scope="module", params=["sample", "simulated"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    if request.param == "sample":
        return build_baseline(open_trace(str(Path(htk.__file__).parent / "traces/sample")).tables)
    job = Config(model="gpt3-126m", layers=4, nodes=2, gpus_per_node=2, micro_batch=8, steps=4)
    folder = tmp_path_factory.mktemp("job")
    simulate_job(check_config(job), folder)
    return build_baseline(open_trace(str(folder)).tables)


def variance(found: Answer) -> float:
    assert found.step_ns is not None
    return (found.sigma * found.step_ns) ** 2


def known(start: Baseline) -> list[tuple[str, str]]:
    """Edits that this step holds something for."""
    edits = []
    for one in EDITS:
        try:
            predict_answer(start, [one])
        except htk.base.errors.UsageError:
            continue
        edits.append(one)
    return edits


def test_disjoint_edits_together_are_no_surer_than_either(start: Baseline) -> None:
    pairs = 0
    for one, other in combinations(known(start), 2):
        if one[0] == other[0]:
            continue
        edited = apply_edits(start, order_edits([one, other]))[0]
        masks = list(edited.touched.values())
        if len(masks) < 2 or (masks[0] & masks[1]).any():
            continue
        pairs += 1
        both = variance(predict_answer(start, [one, other]))
        for single in (one, other):
            assert both >= 0.999 * variance(predict_answer(start, [single])), (one, other)
    assert pairs > 10


def test_an_edit_that_changes_nothing_changes_nothing(start: Baseline) -> None:
    for one in ((), ("batch", "4x"), ("network", "bandwidth=0.1x"), ("replace", "gemm=2x")):
        edits = [one] if one else []
        alone = predict_answer(start, edits)
        for nothing in NOTHING:
            if nothing[0] in dict(edits):
                continue
            both = predict_answer(start, [*edits, nothing])
            assert (both.step_ns, both.intervals) == (alone.step_ns, alone.intervals), (
                one,
                nothing,
            )


def test_uncertainty_grows_with_the_distance(start: Baseline) -> None:
    for name, values in (
        ("batch", ("1.5x", "2x", "4x", "16x", "64x")),
        ("world", ("8", "16", "64", "1024", "1048576")),
        ("network", ("bandwidth=0.8x", "bandwidth=0.5x", "bandwidth=0.2x", "bandwidth=0.02x")),
        ("hardware", ("h100",)),
    ):
        sigmas = [predict_answer(start, [(name, value)]).sigma for value in values]
        assert sigmas == sorted(sigmas), (name, sigmas)
        assert sigmas[0] > predict_answer(start, []).sigma
    assert predict_answer(start, [("world", "1048576")]).sigma > 0.3


def test_opposite_edits_leave_both_uncertainties(start: Baseline) -> None:
    alone = predict_answer(start, [("hardware", "h100")]).sigma
    for batch in ("1.5x", "2x", "3x", "5x"):
        assert predict_answer(start, [("hardware", "h100"), ("batch", batch)]).sigma > 0.9 * alone


def test_a_trifle_beside_another_edit_adds_a_trifle(start: Baseline) -> None:
    """A doubtful edit of a small kernel says nothing about what the other edit changes."""
    for pattern in ("embedding", "loss|softmax"):
        small = ("replace", f"{pattern}=fused")
        one = predict_answer(start, [("batch", "8x")])
        both = predict_answer(start, [("batch", "8x"), small])
        assert both.sigma < 1.2 * one.sigma


def one_sigma(model: StepModel, cause: str) -> float:
    """ns of all edges together: those of one lane follow each other."""
    each = [s.sum() for (c, _), s in model.edge_sigma.items() if c == cause]
    return math.sqrt(sum(e * e for e in each))


def test_edits_of_one_kernel_add_as_variances_of_one_link_in_a_line() -> None:
    from htk.whatif.edit_uncertainty import accumulate_uncertainty
    from htk.whatif.edits import find_edit

    size = {"group": 8, "per_node": 8, "in_bytes": 64 << 20, "out_bytes": 64 << 20}
    acts = [Act("a", 1_000_000), comm("c", 1_000_000, "all_reduce", waits=("a",), **size)]
    model = small_model(acts)

    def applied(before: StepModel, name: str, value: str) -> StepModel:
        return accumulate_uncertainty(
            before, find_edit(name).apply(before.fresh(), value), name, 0.0
        )

    # 10 % of what each displaces: 500 us of a, then as much again of what is left of it
    halved = applied(model, "replace", "a=2x")
    assert one_sigma(halved, "compute") == pytest.approx(50_000)
    # Twice as long again by something else: twice as uncertain, and 4 % of that (batch)
    grown = applied(halved, "batch", "2x")
    assert grown.lengths()[0] == pytest.approx(1_000_000, rel=0.01)
    assert one_sigma(grown, "compute") == pytest.approx(math.hypot(100_000, 20_000), rel=0.02)
    slow = applied(grown, "network", "bandwidth=0.5x")  # 980 us more, of which 10 %
    assert one_sigma(slow, "communication") == pytest.approx(98_000, rel=0.01)
    wider = applied(applied(model, "world", "16"), "network", "bandwidth=0.5x")
    alone = one_sigma(applied(model, "world", "16"), "communication")
    scale = wider.lengths()[1] / applied(model, "world", "16").lengths()[1]
    moved = wider.lengths()[1] * (1 - 1 / scale)
    assert one_sigma(wider, "communication") == pytest.approx(alone * scale + 0.1 * moved, rel=0.01)


def test_what_one_edit_hides_stays_uncertain() -> None:
    found = at_least({"compute": 0.01, "site": 0.003}, 200, [({"compute": 0.05}, 100)])
    assert found == pytest.approx({"compute": 0.025, "site": 0.003})
