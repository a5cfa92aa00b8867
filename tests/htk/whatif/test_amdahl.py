"""Claims of speed-ups against the share that was made faster."""

import math

import pytest

from htk.whatif.amdahl import build_guard, compute_speedup, needed_share


def test_a_claim_needs_its_share() -> None:
    assert needed_share(2.0) == 0.5
    assert needed_share(1.25, faster=2) == pytest.approx(0.4)


def test_a_fused_norm_for_a_step_1_594_times_faster_needs_37_percent() -> None:
    """The published 1.594×; norms of such a model hold about 6 % of a step."""
    found = build_guard(1.594, share=0.06, faster=10)
    assert found.needed_share == pytest.approx(0.414, abs=0.001)  # and 0.373 at no time at all
    assert needed_share(1.594) == pytest.approx(0.373, abs=0.001)
    assert found.at_most == pytest.approx(1.064, abs=0.001)
    assert found.verdict == "not plausible from this part alone"


def test_measured_fusions_are_plausible() -> None:
    assert build_guard(1.05, share=0.07, faster=5).verdict == "plausible"


def test_a_claim_near_the_bound_is_said_to_be_so() -> None:
    assert build_guard(1.2, share=0.17, faster=2).verdict == "only if it took next to no time"


def test_a_part_without_a_share_wins_nothing() -> None:
    assert compute_speedup(0.0, 100) == 1
    assert compute_speedup(1.0, math.inf) == math.inf
