"""Why a job hangs, as flight recorder dumps tell it."""

from typing import Any

from dash import html

from htk.base.columns.arrow import match_texts
from htk.dashboard.components import draw_section
from htk.dashboard.grids import draw_grid
from htk.dashboard.page import Visit

_CAUSES = ("missing_rank", "wrong_group", "cycle", "not_completed")


def has_flight_dumps(visit: Visit) -> bool:
    """Return whether there are flight recorder dumps among the files."""
    sources = visit.trace.tables["collectives"]["source"]
    return bool(match_texts(sources, "flight_recorder".__eq__).any())


def draw_hang_verdict(visit: Visit) -> Any:
    """Return who never came, who made another call, who only waits."""
    result = visit.ask("hang")
    cards = [
        html.Div(
            [
                html.B(row["finding"].replace("_", " ")),
                html.P(row["text"]),
                *([html.Pre(row["frames"])] if row["frames"] else []),
            ],
            className="verdict guilty" if _is_cause(row["finding"]) else "verdict",
        )
        for row in result.to_pylist()[:20]
    ]
    return draw_section("Why does the job hang?", *cards, draw_grid(result, visit, {}))


def _is_cause(finding: str) -> bool:
    return finding in _CAUSES or finding.endswith("_mismatch")
