"""Each rank's time as a bar of shares: plain elements, on the page before any plotting library."""

from dataclasses import replace
from typing import Any

from dash import dcc, html

from htk.answers.output.figure_colours import classes_of
from htk.dashboard.components import attributes
from htk.dashboard.page import Visit
from htk.dashboard.time_shares import Shares, shares


def rank_bars(visit: Visit) -> Any:
    """Return a bar for each rank; its pieces say what they are, a click looks at that rank."""
    bars = shares(visit)
    order = sorted(range(len(bars.ranks)), key=lambda k: bars.ranks[k])
    return html.Div([_bar(visit, bars, k) for k in order], className="rank-bars")


def _bar(visit: Visit, bars: Shares, number: int) -> Any:
    pieces = []
    texts = []
    kinds = classes_of([layer.name for layer in bars.layers])
    for layer, kind in zip(bars.layers, kinds, strict=True):
        share = layer.values[number]
        if not share:
            continue
        text = f"{layer.name}: {share:.1f} %, {layer.texts[number]}"
        if layer.meaning == "unrecorded":
            text = layer.texts[number]
        pieces.append(html.I(className=kind, style={"width": f"{share:.3f}%"}, title=text))
        texts.append(text)
    label = bars.labels[number]
    inside = [html.Span(label), html.Div(pieces, className="stack")]
    facts = attributes(aria_label=f"{label}: {'; '.join(texts)}")
    if any(layer.meaning == "unrecorded" and layer.values[number] for layer in bars.layers):
        return html.Div(inside, className="rank-bar", role="img", **facts)
    narrowed = visit.view.with_filters(ranks=str(bars.ranks[number]))
    href = "/" + replace(narrowed, options={}).search()
    return dcc.Link(html.Div(inside, className="rank-bar", role="img", **facts), href=href)
