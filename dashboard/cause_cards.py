"""What to change first: each cause with its gain, its place on the timeline, and a what-if."""

from dataclasses import replace
from typing import Any

from dash import dcc, html

from htk.base.core.humanize import format_duration, make_sentence
from htk.base.mappings import Fields
from htk.dashboard.components import draw_meter
from htk.dashboard.example_ranges import Instance, find_worst_instance, link_to_timeline
from htk.dashboard.page import Visit
from htk.verdicts.overview.summary import Verdict


def draw_cause_card(visit: Visit, verdict: Verdict, number: int, best: float) -> Any:
    """Return one cause: what it is, what a step gains without it, its place, the what-if of it;
    `best`: the largest gain of all."""
    cause = verdict.causes[number]
    gain: list[Any] = []
    cost = cause.cost_ns(verdict.total_ns)
    if cost is not None:
        value, _, unit = format_duration(cost).partition(" ")
        gain = [value, html.Small(unit), draw_meter(100 * cost / best, "accent")]
    row = _find_recommendation(visit, cause.finding)
    seen = _find_costliest(visit, row) or find_worst_instance(visit, cause.analysis)
    links = [dcc.Link("The numbers", href=visit.view.link(cause.analysis))]
    if seen is not None:
        words = seen.what[:1].upper() + seen.what[1:]
        links.insert(0, dcc.Link(f"{words} on the timeline", href=link_to_timeline(visit, seen)))
    option, _, value = (cause.edit or "").partition(" ")
    if option and " --" not in value:
        edit = option.removeprefix("--").replace("-", "_")
        tried = replace(visit.view, page="whatif", filters={}, options={edit: value})
        links.append(dcc.Link("The step without it", href=f"/whatif{tried.search()}"))
    finding = make_sentence(cause.finding).rstrip(".")
    return html.Div(
        [
            html.Div(str(number + 1), className="number"),
            html.Div(
                [
                    html.H3(finding),
                    html.P(f"{make_sentence(cause.evidence)} To try: {cause.advice}."),
                    *([html.P(make_sentence(cause.overlaps))] if cause.overlaps else []),
                    html.Div(links, className="links"),
                ]
            ),
            html.Div(gain, className="gain"),
        ],
        className="cause",
    )


def _find_recommendation(visit: Visit, finding: str) -> Fields:
    """Return the row of a recommendation; bare where there is none of it."""
    rows = visit.ask("recommendations").to_pylist()
    return next((r for r in rows if r["finding"] == finding), {"start_ns": None})


def _find_costliest(visit: Visit, row: Fields) -> Instance | None:
    """Return where the costliest instance of a finding is; None where that is not told."""
    if row["start_ns"] is None or row["end_ns"] is None:
        return None
    origin = visit.trace.origin_ns
    rank = row["rank"]
    what = "The costliest instance" + (f" (rank {rank})" if rank is not None else "")
    return Instance(what, row["start_ns"] - origin, row["end_ns"] - origin, rank)
