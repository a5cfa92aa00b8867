"""A page for each analysis of the menu: nothing about any of them is written here."""

from typing import Any

import dash_mantine_components as dmc
from dash import html

from htk.analyses import ANALYSES, find_analysis
from htk.answers.output.one_sentence import state_answer
from htk.base.errors import HtkError, MissingTable
from htk.dashboard.components import (
    draw_answer,
    draw_control,
    draw_coverage,
    draw_empty_panel,
    draw_problem,
    not_there,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.page import Visit


def list_page_names() -> set[str]:
    """Return every question's page."""
    return set(ANALYSES)


def draw_question_page(visit: Visit, name: str) -> Any:
    """Return the page of an analysis: its answer in a sentence, its question, controls, picture,
    table and coverage."""
    analysis = find_analysis(name)
    head: list[Any] = [html.H1(analysis.question)]
    method = _draw_method(analysis.doc.partition("\n")[2].strip())
    try:
        options = visit.view.values(analysis.options)
        controls = [
            draw_control(o, options.get(o.name, o.default)) for o in analysis.options.values()
        ]
        result = visit.ask(name, **options)
        if answered := state_answer(result):
            head = [html.H1(answered), html.P(analysis.question, className="lead")]
        head += [*method, dmc.Group(controls, align="end", mb="sm")]
    except MissingTable as error:
        return html.Div([*head, *method, draw_empty_panel(not_there(str(error)))])
    except HtkError as error:
        return html.Div([*head, *method, draw_problem(str(error))])
    table = draw_grid(result, visit, options)
    body = html.Section([draw_answer(result, dark=visit.dark), *draw_coverage(result), table])
    return html.Div([*head, body])


def _draw_method(text: str) -> list[Any]:
    """Return how an answer is found, folded away: names that it quotes in the type of code."""
    if not text:
        return []
    pieces = text.split("`")
    words = [html.Code(piece) if k % 2 else piece for k, piece in enumerate(pieces)]
    return [html.Details([html.Summary("How this is found"), html.P(words)], className="coverage")]
