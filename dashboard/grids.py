"""Tables of a page: they sort, filter, group, export and lead to the timeline."""

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pyarrow as pa
import pyarrow.compute as pc
from dash import dcc, html

from htk.answers.output.render import CHANGES, PROSE
from htk.answers.output.result import Result
from htk.base.core.humanize import shorten_apart, shorten_text
from htk.base.mappings import Facts, Fields
from htk.base.schema import ABSOLUTE_TIMES, doc_of
from htk.base.schema.columns import build_headings, unit_of
from htk.dashboard.components import (
    MADE_ON_OPENING,
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    spell_attributes,
)
from htk.dashboard.markup import Nearby
from htk.dashboard.page import NAMED, Visit
from htk.dashboard.table_view import TableView, group_rows
from htk.dashboard.url_state import UrlState, spell_option

_ROW_HEIGHT = 34  # of a table, in pixels
ROWS = 5000  # more is for files, not for a page
_ON_TIMELINE = ("name", "op", "launched_by")  # columns whose values are names of spans
_USUAL = {"complete": True, "cycle": 0, "device_kind": "gpu"}
_WORDS = {"valueFormatter": {"function": "htkWords(params.value)"}}  # of codes: late_host
_SHORT, _LONG = "short ", "long "  # before a column's name: what is shown of it, in wide windows
_MOST_LETTERS = (
    400  # of a value that is no name: a group of all ranks names each of them, in each row
)
_LETTERS = 42  # of a name: what the widest column holds
_NAME = {
    "pinned": "left",
    "maxWidth": 640,
    "valueFormatter": {"function": "htkName(params.value, params.data, params.colDef.field)"},
}
_LAYOUT = {"maxWidth": 360, "pinned": "left"}  # whole: layouts differ in their last words, too
_SENTENCES = {"maxWidth": 520}  # wider than names, even in a small table


def defer_script() -> None:
    """Let the script of tables be fetched when a page first has one, by assets/grid_script.js."""
    for script in dag._js_dist:
        if script["relative_package_path"] == "dash_ag_grid.min.js":
            script["dynamic"] = True


def draw_question(visit: Visit, name: str, *, rows: int = 12, **options: Any) -> list[Any]:
    """Return the picture, table and coverage of an analysis, for use within a page."""
    result = visit.ask(name, **options)
    return [
        draw_answer(result, dark=visit.dark),
        draw_grid(result, visit, options, rows=rows),
        *draw_coverage(result)[1:],
    ]


def draw_grid(
    result: Result,
    visit: Visit,
    asked: Facts,
    *,
    rows: int = 18,
    key: str = "",
    only: tuple[str, ...] = (),
    spans: bool = True,
) -> Any:
    """Return a table that sorts, filters, groups and exports. `key` tells two of a page apart; of a
    small one `only` some columns are shown. Rows lead to the timeline where they name `spans`."""
    name = result.analysis.name
    key = key or name
    if not len(result):
        where = "under the filters that are set" if visit.view.filters else "was recorded"
        return draw_empty_panel(f"No rows: nothing of this kind {where}.")
    texts = [f.name for f in result.table.schema if _is_groupable(f) and _is_used(result.table, f)]
    note = f"first {ROWS:,} of {len(result):,} rows" if len(result) > ROWS else ""
    theme = "ag-theme-quartz" + ("-dark" if visit.dark else "")
    shown_rows = min(rows, len(result))
    height = _ROW_HEIGHT * (shown_rows + 1) + 20 + 48 * (len(result) > 100)
    view = TableView.from_url(visit.view, key)
    by = view.group if view.group in texts else ""
    shown_table = result.table.select(list(only)) if only else result.table
    shown_table = group_rows(result.table, by) if by else shown_table
    view = view.of_table(shown_table)
    return html.Div(
        [
            dmc.Group(
                [
                    *draw_export_links(name, visit.view, asked, key),
                    dmc.Select(
                        id={"type": "group", "name": key},
                        data=[{"value": t, "label": t.replace("_", " ")} for t in texts],
                        value=by or None,
                        placeholder="group by …",
                        clearable=True,
                        size="xs",
                        w=150,
                        comboboxProps=MADE_ON_OPENING,
                        **spell_attributes(aria_label="group by"),
                    ),
                    dcc.Store(
                        id={"type": "asked", "name": key},
                        data={"analysis": name, "options": dict(asked)},
                    ),
                    html.Span(note, className="coverage"),
                ],
                gap="xs",
                className="grid-tools",
            ),
            Nearby(
                dag.AgGrid(
                    id={"type": "grid", "name": key},
                    **rows_and_columns(
                        shown_table,
                        int(result.coverage.get("origin_ns") or 0),
                        view.sort,
                        spans=spans,
                    ),
                    filterModel=dict(view.where),
                    defaultColDef={
                        "sortable": True,
                        "filter": True,
                        "resizable": True,
                        "maxWidth": 280 if only else 520,
                    },
                    columnSize="autoSize",
                    dashGridOptions={
                        "pagination": len(result) > 100,
                        "paginationPageSize": 100,
                        "tooltipShowDelay": 300,
                        "enableCellTextSelection": True,
                        "postSortRows": {"function": "htkRestLast(params.nodes)"},
                        "rowHeight": _ROW_HEIGHT,
                        "headerHeight": _ROW_HEIGHT,
                    },
                    className=theme,
                    style={"height": f"{height}px"},
                ),
                height,
                "table",
            ),
        ],
        className="grid",
    )


def draw_export_links(name: str, view: UrlState, asked: Facts, key: str) -> list[Any]:
    """Return the links to the answer as a file: with the rows that are seen, in their order."""
    options = {k: spell_option(v) for k, v in asked.items() if v is not None}
    search = UrlState(name, view.filters, options, view.run).search()
    kinds = (("csv", "CSV"), ("parquet", "Parquet"), ("md", "Markdown"))
    return [
        html.A(
            title,
            href=f"/export/{name}.{form}{search}",
            className="export",
            title="the rows as they are filtered, grouped and sorted here",
            **spell_attributes(data_table=key),
        )
        for form, title in kinds
    ]


def rows_and_columns(
    table: pa.Table,
    origin: int = 0,
    sort: Sequence[tuple[str, bool]] = (),
    *,
    spans: bool = True,
) -> Fields:
    """Return a table for AG Grid. Times count from `origin`, so that the browser can hold them."""
    some = table.slice(0, ROWS).to_pylist()
    times = [name for name in ABSOLUTE_TIMES if name in table.column_names]
    for row in some:  # JSON wants rows
        for name in times:
            if isinstance(row[name], int):
                row[name] -= origin
    for field in table.schema:
        if _is_text(field) and field.name in NAMED:
            _add_short(some, field.name)
        elif _is_text(field) and field.name not in PROSE:
            _cut_long(some, field.name)
    used = [field for field in table.schema if _is_used(table, field)]
    words = build_headings(field.name for field in used)
    columns = [_build_grid_column(table, field, words[field.name]) for field in used]
    drawn = next((n for n in _ON_TIMELINE if n in table.column_names), None)
    by_name = {column["field"]: column for column in columns}
    for priority, (name, descending) in enumerate(sort):
        if name in by_name:
            by_name[name] |= {"sort": "desc" if descending else "asc", "sortIndex": priority}
    if spans and drawn is not None and drawn == columns[0]["field"]:
        columns.insert(0, _to_timeline(drawn))
    return {"rowData": some, "columnDefs": columns}


def _add_short(rows: list[Fields], name: str) -> None:
    """Add to rows with a long name how it is shown: its telling parts, as plots have it."""
    for word, letters in ((_SHORT, _LETTERS), (_LONG, 2 * _LETTERS)):
        cut = shorten_apart((str(row[name]) for row in rows if row[name] is not None), letters)
        for row in rows:  # JSON wants rows
            text = row[name]
            if text is not None and cut[str(text)] != text:
                row[f"{word}{name}"] = cut[str(text)]


def _cut_long(rows: list[Fields], name: str) -> None:
    """Leave out the middle of what is too long for a page; files have it whole."""
    values = {row[name] for row in rows}
    cut = {v: shorten_text(v, _MOST_LETTERS) for v in values if v and len(v) > _MOST_LETTERS}
    for row in rows if cut else []:  # JSON wants rows
        row[name] = cut.get(row[name], row[name])


def _to_timeline(name: str) -> Fields:
    """Return a column that leads from a row to its longest instance."""
    return {
        "colId": "timeline",
        "field": name,
        "headerName": "↗",
        "headerTooltip": "the longest instance on the timeline",
        "valueFormatter": {"function": "htkGo(params.value)"},
        "tooltipValueGetter": {"function": "'the longest instance on the timeline'"},
        "pinned": "left",
        "width": 44,
        "suppressAutoSize": True,
        "sortable": False,
        "filter": False,
        "cellClass": "go",
    }


def _is_groupable(field: pa.Field) -> bool:
    return _is_text(field) or field.name in ("rank", "step", "device", "stage", "layer")


def _is_text(field: pa.Field) -> bool:
    return str(field.type).startswith(("string", "dictionary"))


def _is_used(table: pa.Table, field: pa.Field) -> bool:
    return bool(table.num_rows == 0 or table[field.name].null_count < table.num_rows)


def _is_usual(column: pa.ChunkedArray, name: str) -> bool:
    """Return whether a column says the same in all rows, and what goes without saying."""
    return name in _USUAL and pc.unique(column).to_pylist() == [_USUAL[name]]


def _build_grid_column(table: pa.Table, field: pa.Field, heading: str) -> Fields:
    column = table[field.name]
    unit = unit_of(field.name)
    shape = {"ns": "htkTime", "bytes": "htkSize", "%": "htkShare"}.get(unit, "htkPlain")
    if field.name in CHANGES:
        shape = "htkChange"
    if pa.types.is_boolean(field.type):
        shape = "htkTruth"
    numeric = {
        "cellDataType": False,  # else AG Grid draws a box for what is true or false
        "type": "numericColumn",
        "filter": "agNumberColumnFilter",
        "valueFormatter": {"function": f"{shape}(params.value)"},
        "tooltipValueGetter": {"function": f"htkExact(params.value, {unit!r})"},
    }
    return {
        "field": field.name,
        "headerName": heading + (f" {unit}" if shape == "htkPlain" and unit else ""),
        "headerTooltip": doc_of(field),
        **(_NAME if field.name in NAMED else {}),
        **(_SENTENCES if field.name in PROSE else {}),
        **(_LAYOUT if field.name == "layout" else {}),
        **({"hide": True} if _is_usual(column, field.name) else {}),
        **({"tooltipField": field.name} if _is_text(field) else numeric),
        **(_WORDS if field.name in ("cause", "finding") else {}),
    }
