"""Who is late, and what to do first, where the answer is known."""

from htk.faces.notebook.session import Session


def test_stragglers(two_ranks: Session) -> None:
    """Rank 1 arrives 10 late at both collectives and costs rank 0 as much each time."""
    late, other = two_ranks.stragglers().to_pylist()
    assert (late["rank"], late["arrived_last"], late["cost_to_others_ns"]) == (1, 2, 20_000)
    assert late["late_in"] == "host"
    assert (other["rank"], other["cost_to_others_ns"], other["wait_ns"]) == (0, 0, 20_000)


def test_recommendations_come_worst_first_with_their_evidence(two_ranks: Session) -> None:
    rows = two_ranks.recommendations().to_pylist()
    gains = [r["step_gain_ns"] for r in rows if r["step_gain_ns"] is not None]
    assert gains == sorted(gains, reverse=True) and {r["basis"] for r in rows} == {"replay"}
    launches, unexplained = rows
    assert launches["analysis"] == "idle_breakdown"
    assert launches["gain_ns"] == (37_000 + 47_000) // 2
    # Neither says what its collectives carry: nobody knows what could run beside them.
    assert unexplained["finding"] == "unexplained"
    assert "transfers beside which no independent compute is known" in unexplained["advice"]
