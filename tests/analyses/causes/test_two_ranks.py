"""Who is late, and what to do first, where the answer is known."""

from htk.notebook.session import Session


def test_stragglers(two_ranks: Session) -> None:
    """Rank 1 arrives 10 late at both collectives and costs rank 0 as much each time."""
    late, other = two_ranks.stragglers().to_pylist()
    assert (late["rank"], late["arrived_last"], late["cost_to_others_ns"]) == (1, 2, 20_000)
    assert late["late_in"] == "host"
    assert (other["rank"], other["cost_to_others_ns"], other["wait_ns"]) == (0, 0, 20_000)


def test_recommendations_come_worst_first_with_their_evidence(two_ranks: Session) -> None:
    rows = two_ranks.recommendations().to_pylist()
    gains = [r["gain_ns"] for r in rows]
    assert gains == sorted(gains, reverse=True)
    found = {r["analysis"]: r for r in rows}
    assert found["stragglers"]["gain_ns"] == 10_000
    assert "rank 1" in found["stragglers"]["evidence"]
    assert "70.0 µs of 70.0 µs exposed" in found["comm_compute_overlap"]["evidence"]
