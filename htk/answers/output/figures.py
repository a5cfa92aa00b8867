"""A chart and a table become a plotly figure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.answers.output.figure_columns import (
    NO_NAME,
    WITH_NUMBER,
    axis_title,
    label_categories,
    scale_of,
    title_of,
)
from htk.answers.output.figure_frame import frame_figure
from htk.answers.output.figure_marks import marks_of
from htk.answers.output.figure_text import with_plain_names
from htk.answers.output.population import MOST_BARS, draw_population, is_population
from htk.answers.output.rank_groups import MOST_ROWS
from htk.answers.output.rank_tables import add_up_blocks, condense_rows, tabulate_ends
from htk.answers.output.tokens import palette_of
from htk.base.columns.arrow import plain_type
from htk.base.core.chart import Bar, Chart, Heatmap, Line, Scatter, TimelineChart
from htk.base.core.extras import require_extra
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64

_MOST_POINTS = 2000
_MOST_CELLS = 50_000  # of a heat map; points of lines
_MOST_BARS = 16  # that lie: each has its name
_MOST_MARKS = 20  # of an axis
_MOST_LONG = 12  # of two digits and more
_MOST_ACROSS = 6  # columns of a map that are named
_MOST_WORDS = 5  # marks that say "rank 3" and not 3


def draw_figure(table: pa.Table, chart: Chart, *, dark: bool = False) -> Any:
    """Return the picture of an answer."""
    require_extra("plot", "a picture")
    chart = recorded_chart(chart, table)
    table = _single_ranks(table, chart)
    if isinstance(chart, Bar) and is_population(table, chart):
        return with_plain_names(draw_population(table, chart, dark=dark))
    table, chart = _of_few_ranks(table, chart)
    shown, mean = _over_ranks(table, chart)
    shown = shown.slice(0, _MOST_CELLS if isinstance(chart, Heatmap | Line) else _MOST_POINTS)
    if isinstance(chart, Bar) and chart.horizontal:
        shown = shown.slice(0, _MOST_BARS)
    drawn = marks_of(shown, chart, palette_of(dark))
    # Each sign on its own side of zero: what saves does not hide what costs.
    mode = "relative" if isinstance(chart, Bar) and chart.stacked else "group"
    fig = frame_figure(drawn, dark=dark, barmode=mode)
    note = " (mean over ranks)" if mean else ""
    _label_axes(fig, shown, chart, note)
    if isinstance(chart, Line) and chart.x in WITH_NUMBER:
        marks = sorted(v for v in shown[chart.x].unique().to_pylist() if v is not None)
        fig.update_xaxes(tickmode="array", tickvals=keep_marks_apart(marks, _MOST_MARKS))
    if isinstance(chart, Bar):
        _arrange_bars(fig, shown, chart)
        fig.update_layout(showlegend=_has_legend(chart, drawn))
    if not any(len(trace.x) for trace in fig.data if trace.x is not None):
        fig.add_annotation(
            text="no rows", showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper"
        )
    return with_plain_names(fig)


def _has_legend(chart: Bar, drawn: list[Any]) -> bool:
    """Return whether names of series tell what the axes do not: a lone rank is named, too."""
    if chart.color in (None, chart.x):
        return len(drawn) > 1 and chart.color is None
    return [trace.name for trace in drawn] != [NO_NAME]


def keep_marks_apart(
    marks: list[int], most: int, position: Callable[[int], float] = float
) -> list[int]:
    """Return those of ordered marks whose words do not run into each other: `most` fill the axis;
    `position`: where a mark stands on it."""
    if not marks:
        return []
    least = (position(marks[-1]) - position(marks[0])) / most
    kept = marks[:1]
    for mark in marks[1:]:
        if position(mark) - position(kept[-1]) >= least:
            kept.append(mark)
    return kept


def recorded_chart(chart: Chart, table: pa.Table) -> Chart:
    """Return the bars that were recorded; on a trace without GPU work those of the host."""
    if not isinstance(chart, Bar) or not table.num_rows:
        return chart
    ys = (chart.y,) if isinstance(chart.y, str) else chart.y
    kept = tuple(y for y in ys if table[y].null_count < table.num_rows)
    if kept == ys:
        return chart
    if kept:
        return replace(chart, y=kept)
    return chart if chart.instead is None else replace(chart, y=chart.instead)


def _single_ranks(table: pa.Table, chart: Chart) -> pa.Table:
    """Rows of one rank each where bars are of ranks: those of all together are no bar beside."""
    if not isinstance(chart, Bar) or chart.x != "rank" or not table["rank"].null_count:
        return table
    single = table.filter(pc.is_valid(table["rank"]))
    return single if single.num_rows else table


def _of_few_ranks(table: pa.Table, chart: Chart) -> tuple[pa.Table, Chart]:
    """Return a picture of many ranks as one that has room for what it names."""
    match chart:
        case Bar(color="rank", y=str(y)) if len(table["rank"].unique()) > MOST_BARS:
            ends = (f"median_{y}", f"highest_{y}")
            both = tabulate_ends(table, chart.x, y, ends)
            return both, replace(chart, y=ends, color=None, stacked=False)
        case Heatmap(y="rank") if len(table["rank"].unique()) > MOST_ROWS:
            return condense_rows(table, chart.x, chart.value), replace(chart, y="ranks")
        case Heatmap(x="to_rank"):
            pairs, x, y = add_up_blocks(table, chart.x, chart.y, chart.value)
            return pairs, replace(chart, x=x, y=y)
    return table, chart


def _over_ranks(table: pa.Table, chart: Chart) -> tuple[pa.Table, bool]:
    """Bars that several ranks would share show their mean."""
    if not isinstance(chart, Bar) or "rank" not in table.column_names:
        return table, False
    by = list(dict.fromkeys([chart.x, *([chart.color] if chart.color else [])]))
    ranks = len(table["rank"].unique())
    if "rank" in by or ranks < 2 or table.group_by(by).aggregate([]).num_rows == table.num_rows:
        return table, False
    ys = [chart.y] if isinstance(chart.y, str) else list(chart.y)
    plain = pa.table(
        {name: pc.cast(table[name], plain_type(table[name].type)) for name in [*by, *ys]}
    )
    sums = plain.group_by(by, use_threads=False).aggregate([(y, "sum") for y in ys])
    columns = [sums[name] for name in by]
    columns += [pc.divide(pc.cast(sums[f"{y}_sum"], FLOAT64), float(ranks)) for y in ys]
    return pa.table(columns, names=[*by, *ys]), True


def _arrange_bars(fig: Any, table: pa.Table, chart: Bar) -> None:
    """Bars in the order of the table, whatever series they belong to."""
    order = list(dict.fromkeys(label_categories(table, chart.x)))
    axis = fig.update_yaxes if chart.horizontal else fig.update_xaxes
    if not all(isinstance(name, str) for name in order):
        numbers = sorted(n for n in order if isinstance(n, int))
        if 0 < len(numbers) <= _MOST_MARKS:  # names of things, not amounts: streams, matches
            marks = _MOST_LONG if len(str(numbers[-1])) > 1 else None  # all of them run together
            axis(type="category", categoryorder="array", categoryarray=numbers, nticks=marks)
            fig.update_layout(bargap=max(0.2, 0.9 - 0.1 * len(numbers)))
        return
    axis(categoryorder="array", categoryarray=order)
    if chart.x in WITH_NUMBER and len(order) > _MOST_WORDS and not chart.horizontal:
        axis(tickvals=order, ticktext=[name.split()[-1] for name in order], title=chart.x)
    fig.update_layout(bargap=max(0.2, 0.9 - 0.1 * len(order)))  # a bar alone is no wall
    if chart.horizontal:
        axis(tickmode="array", tickvals=order)


def _describe_cells(table: pa.Table, column: str, most: int) -> Fields:
    """Return how cells stand along an axis: each value once, numbers in their order."""
    names = label_categories(table, column)
    if pa.types.is_integer(table.schema.field(column).type):
        values = table[column].to_pylist()
        pairs = {v: n for v, n in zip(values, names, strict=True) if v is not None}
        names = [pairs[value] for value in sorted(pairs)]
    order = list(dict.fromkeys(names))
    every = -(-len(order) // most)  # rounded up
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": order,
        **({"tickvals": order[::every]} if every > 1 else {}),
    }


def _label_axes(fig: Any, table: pa.Table, chart: Chart, note: str) -> None:
    if isinstance(chart, Heatmap):
        fig.update_xaxes(
            title=title_of(table, chart.x), **_describe_cells(table, chart.x, _MOST_ACROSS)
        )
        fig.update_yaxes(
            title=title_of(table, chart.y), **_describe_cells(table, chart.y, MOST_ROWS)
        )
        if "rank" in chart.y or chart.y == "stage":  # the first on top, as in lists of them
            fig.update_yaxes(autorange="reversed")
        return
    if isinstance(chart, TimelineChart):
        fig.update_xaxes(title="ms")
        return
    y = chart.y if isinstance(chart.y, str) else chart.y[0]
    words = title_of(table, y) if isinstance(chart.y, str) else scale_of(table, y)[1]
    titles = (axis_title(table, chart.x), words + note)
    if isinstance(chart, Bar) and chart.horizontal:
        fig.update_yaxes(autorange="reversed")
        fig.update_xaxes(title=titles[1])
        return
    fig.update_xaxes(title=titles[0])
    fig.update_yaxes(title=titles[1])
    if isinstance(chart, Line):
        fig.update_yaxes(rangemode="tozero")
    if isinstance(chart, Scatter):
        fig.update_xaxes(type="log" if chart.log_x else "linear")
        fig.update_yaxes(type="log" if chart.log_y else "linear")
