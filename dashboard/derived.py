"""A page for each analysis of the menu: nothing about any of them is written here."""

from typing import Any

import dash_mantine_components as dmc
from dash import html

from htk.analyses import ANALYSES, find
from htk.base.errors import HtkError, MissingTable
from htk.dashboard.components import control, coverage, empty, not_there, picture, problem
from htk.dashboard.grids import grid
from htk.dashboard.page import Visit


def titles() -> dict[str, list[tuple[str, str]]]:
    """Subjects, and the (page, title) of each question."""
    subjects: dict[str, list[tuple[str, str]]] = {}
    for name, entry in sorted(ANALYSES.items()):
        subjects.setdefault(entry.subject, []).append((name, name.replace("_", " ")))
    return subjects


def names() -> set[str]:
    """Return every question's page."""
    return set(ANALYSES)


def page(visit: Visit, name: str) -> Any:
    """Return the page of an analysis: its question, controls, picture, table and coverage."""
    analysis = find(name)
    head: list[Any] = [
        html.H1(analysis.question),
        html.P(analysis.doc.partition("\n")[2].strip(), className="doc"),
    ]
    try:
        options = visit.view.values(analysis.options)
        controls = [control(o, options.get(o.name, o.default)) for o in analysis.options.values()]
        head.append(dmc.Group(controls, align="end", mb="sm"))
        result = visit.ask(name, **options)
    except MissingTable as error:
        return html.Div([*head, empty(not_there(str(error)))])
    except HtkError as error:
        return html.Div([*head, problem(str(error))])
    table = grid(result, visit, options)
    body = html.Section([picture(result, dark=visit.dark), *coverage(result), table])
    return html.Div([*head, body])
