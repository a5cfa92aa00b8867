"""Goals of speed are held against the figures of a run."""

from bench.goals import Goal, goals
from bench.page import written

RAN = {"date": "2026-01-01", "cores": 2, "machine": "x", "python": "3.11", "load": [1.0, 1.0]}


def test_a_goal_is_met_from_its_side() -> None:
    most, least = Goal("a", 10, "s", 12.0), Goal("b", 40, "x", 20.0, is_least=True)
    assert (most.verdict, least.verdict) == ("1.2 times off", "2.0 times off")
    assert (
        Goal("a", 10, "s", 9.0).verdict == Goal("b", 40, "x", 41.0, is_least=True).verdict == "met"
    )
    assert Goal("a", 10, "s", None).verdict == "not measured in this run"


def test_all_questions_and_what_they_share_count() -> None:
    part = {"analyses_s": {"a": 0.5, "b": 0.25}, "shared_s": {"c": 0.5}}
    kept = {"analyses": {"figures": {"analyses": {"1000000 events": part}}}}
    million, more = (aim for aim in goals(kept) if aim.what.startswith("all questions"))
    assert (million.measured, million.is_met, more.measured) == (1.25, False, None)


def test_the_page_says_how_far_and_why() -> None:
    row = {"what": "sweep of 40", "activities": 33_000, "ms": 1500.0, "limit_ms": 1000.0}
    page, _ = written({"whatif": {"ran": RAN, "figures": [row, row | {"what": "x", "ms": 1}]}})
    assert "| sweep of 40, 33,000 activities | ≤ 1,000 ms | 1,500 | 1.5 times off |" in page
    assert "| x, 33,000 activities | ≤ 1,000 ms | 1 | met |" in page
    assert "- sweep of 40, 33,000 activities: each answer replays the step" in page
