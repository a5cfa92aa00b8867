"""Figures of each of many ranks as arrays, and the words above their picture."""

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.answers.output.figure_columns import scale_column, series_of
from htk.answers.output.rank_groups import AlikeRanks, group_ranks
from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import Floats, Ints
from htk.base.core.chart import Bar
from htk.base.core.humanize import format_number
from htk.base.mappings import Fields
from htk.base.schema.columns import unit_of

_MOST_FIGURES = 8  # of one picture; the smaller ones of a stack are one
_OTHERS = "others"
_LINE = 46  # letters: of a telephone's width
_MOST_LINES = 3


class RankFigure(NamedTuple):
    """One figure of each rank, in the order of the ranks; nan: not recorded."""

    name: str
    values: Floats


def figures_of_ranks(table: pa.Table, chart: Bar, ranks: Ints) -> list[RankFigure]:
    """Return the figures of each rank: its rows' sum, of shares their mean."""
    of_row = read_numbers(table["rank"])
    series = []
    for name, rows, y in series_of(table, chart.y, chart.color):
        amounts = np.array(scale_column(table, y, rows), float)
        column = np.searchsorted(ranks, of_row[rows])
        is_there = ~np.isnan(amounts)
        count = np.bincount(column[is_there], minlength=len(ranks))
        values: Floats = np.zeros(len(ranks))
        np.add.at(values, column[is_there], amounts[is_there])
        if unit_of(y) == "%":
            values /= np.maximum(count, 1)
        if not chart.stacked or chart.color is None:
            values[count == 0] = np.nan
        series.append(RankFigure(name, values))
    kept = [part for part in series if not np.isnan(part.values).all()]
    return _fold_small(kept) if chart.stacked else kept


def _fold_small(series: Sequence[RankFigure]) -> list[RankFigure]:
    """Return the largest series, the smaller ones of a stack as one."""
    by_size = sorted(series, key=lambda part: -float(np.nansum(part.values)))
    small = by_size[_MOST_FIGURES - 1 :]
    if len(small) < 2:
        return list(series)
    others = RankFigure(_OTHERS, np.nansum([part.values for part in small], axis=0))
    large = {part.name for part in by_size[: _MOST_FIGURES - 1]}
    return [*(part for part in series if part.name in large), others]


def groups_of(figure: RankFigure, ranks: Ints) -> list[AlikeRanks]:
    """Return the groups of the ranks of which it was recorded."""
    is_there = ~np.isnan(figure.values)
    return group_ranks(ranks[is_there], figure.values[is_there])


def range_of(figure: RankFigure) -> float:
    """Return how far the least and the most lie apart."""
    return float(np.nanmax(figure.values) - np.nanmin(figure.values))


def name_figure(name: str, words: str, series: int) -> str:
    """Return words on a figure, which say its name where it is one of several."""
    return f"{name}: {words}" if series > 1 else words


def amounts_in(unit: str) -> Callable[[float], str]:
    """Return what writes an amount with its unit."""
    return lambda value: f"{format_number(float(f'{value:.3g}'))} {unit}".strip()


def wrap_words(text: str) -> str:
    """Return words over the picture, in as many lines as they take."""
    lines = textwrap.wrap(text, _LINE, break_long_words=False)
    return "<br>".join(lines[:_MOST_LINES]) + ("…" if len(lines) > _MOST_LINES else "")


def title_above(text: str, down: float) -> Fields:
    """Return words at the left edge; `down`: of the height, to where they begin."""
    left = {"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 8}}
    return {
        "text": wrap_words(text),
        "font": {"size": 12.5},
        "y": 1 - down,
        "yref": "container",
        "yanchor": "top",
        **left,
    }
