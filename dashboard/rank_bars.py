"""Each rank's time as a bar of shares: plain elements, on the page before any plotting library. Of
many ranks those that behave alike are one bar."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from dash import dcc, html

from htk.answers.output.figure_colours import classes_of
from htk.answers.output.population import MOST_BARS
from htk.answers.output.rank_groups import find_nodes, group_ranks, name_ranks
from htk.dashboard.components import spell_attributes
from htk.dashboard.page import Visit
from htk.dashboard.time_shares import Shares, compute_time_shares

_MOST_GROUPS = 10
_LEAST_PCT = 1.0  # a part that is less everywhere parts no ranks
_MOST_CHOSEN = 16  # ranks that a click on a group chooses


def rank_bars(visit: Visit) -> Any:
    """Return a bar for each rank, or for ranks that are alike; its pieces say what they are, a
    click looks at them."""
    bars = compute_time_shares(visit)
    if len(bars.ranks) <= MOST_BARS:
        order = sorted(range(len(bars.ranks)), key=lambda k: bars.ranks[k])
        drawn = [_draw_bar(visit, bars, [k], bars.labels[k]) for k in order]
        return html.Div(drawn, className="rank-bars")
    nodes = find_nodes(bars.ranks, [None] * len(bars.ranks))
    drawn = []
    for rows in _find_alike(bars):
        label = name_ranks([bars.ranks[k] for k in rows], nodes)
        drawn.append(_draw_bar(visit, bars, rows, label))
    hint = "Ranks that behave alike are one bar, their mean. "
    link = dcc.Link("Each rank on a map", href=visit.view.link("time_breakdown"))
    return html.Div([*drawn, html.P([hint, link], className="hint")], className="rank-bars")


def _find_alike(bars: Shares) -> list[list[int]]:
    """Return the rows of ranks whose parts are alike, most first; what is left, together."""
    rows = np.arange(len(bars.ranks))
    keys: list[tuple[int, ...]] = [()] * len(rows)
    for layer in bars.layers:
        values = np.array(layer.values, float)
        if values.max() < _LEAST_PCT:
            continue
        for number, group in enumerate(group_ranks(rows, values)):
            for row in group.ranks:
                keys[row] += (number,)
    alike: dict[tuple[int, ...], list[int]] = {}
    for row, key in enumerate(keys):
        alike.setdefault(key, []).append(row)
    groups = sorted(alike.values(), key=lambda group: -len(group))
    rest = [row for group in groups[_MOST_GROUPS - 1 :] for row in group]
    return [*groups[: _MOST_GROUPS - 1], *([sorted(rest)] if rest else [])]


def _draw_bar(visit: Visit, bars: Shares, rows: Sequence[int], label: str) -> Any:
    pieces = []
    texts = []
    kinds = classes_of([layer.name for layer in bars.layers])
    for layer, kind in zip(bars.layers, kinds, strict=True):
        share = float(np.mean([layer.values[row] for row in rows]))
        if not share:
            continue
        text = f"{layer.name}: {share:.1f} %"
        if len(rows) == 1:
            text += f", {layer.texts[rows[0]]}"
        if layer.meaning == "unrecorded":
            text = layer.texts[rows[0]]
        pieces.append(html.I(className=kind, style={"width": f"{share:.3f}%"}, title=text))
        texts.append(text)
    inside = [html.Span(label), html.Div(pieces, className="stack")]
    facts = spell_attributes(aria_label=f"{label}: {'; '.join(texts)}")
    bar = html.Div(inside, className="rank-bar", role="img", **facts)
    lost = [row for f in bars.layers if f.meaning == "unrecorded" for row in rows if f.values[row]]
    if lost or len(rows) > _MOST_CHOSEN:
        return bar
    ranks = ",".join(str(bars.ranks[row]) for row in rows)
    narrowed = visit.view.with_filters(ranks=ranks)
    return dcc.Link(bar, href="/" + replace(narrowed, options={}).search())
