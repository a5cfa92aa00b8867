"""Tables as the address says they are looked at: what is seen is what is exported."""

import csv
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from htk.dashboard.table_view import TableView
from htk.dashboard.url_state import UrlState
from tests.dashboard.conftest import settled, until

TABLE = pa.table(
    {
        "name": pa.array(["b", "a", None, "Gemm", "gemm x", "a"]).dictionary_encode(),
        "start_ns": [1000, 1005, 1002, None, 1004, 1003],
        "count": [3, 1, 2, 2, None, 9],
    }
)


def looked_at(**options: str) -> TableView:
    return TableView.from_url(UrlState("x", {}, {f"{k}.t": v for k, v in options.items()}), "t")


def names(view: TableView, origin: int = 0) -> list[Any]:
    return list(view.applied(TABLE, origin)["name"].to_pylist())


def text(way: str, value: str = "") -> dict[str, Any]:
    return {"filterType": "text", "type": way, "filter": value}


def number(way: str, value: float = 0, to: float = 0) -> dict[str, Any]:
    return {"filterType": "number", "type": way, "filter": value, "filterTo": to}


@pytest.mark.parametrize(
    ("column", "model", "left"),
    [
        ("name", text("contains", "GEMM"), [3, 4]),
        ("name", text("notContains", "gemm"), [0, 1, 2, 5]),
        ("name", text("equals", "gemm"), [3]),
        ("name", text("notEqual", "a"), [0, 2, 3, 4]),
        ("name", text("startsWith", "ge"), [3, 4]),
        ("name", text("endsWith", "m"), [3]),
        ("name", text("blank"), [2]),
        ("name", text("notBlank"), [0, 1, 3, 4, 5]),
        ("count", number("equals", 2), [2, 3]),
        ("count", number("notEqual", 2), [0, 1, 5]),
        ("count", number("lessThan", 2.5), [1, 2, 3]),
        ("count", number("greaterThanOrEqual", 3), [0, 5]),
        ("count", number("inRange", 1, 3), [2, 3]),
        ("count", number("blank"), [4]),
        # Times of day as the page shows them: from the recording's start.
        ("start_ns", number("lessThan", 3), [0, 2]),
        ("count", {"filterType": "number", "operator": "OR",
                   "conditions": [number("equals", 1), number("equals", 9)]}, [1, 5]),
        ("name", {"filterType": "text", "operator": "AND",
                  "conditions": [text("contains", "g"), text("contains", "x")]}, [4]),
    ],
)  # fmt: skip
def test_filters_leave_what_the_grid_leaves(
    column: str, model: dict[str, Any], left: list[int]
) -> None:
    view = looked_at(where=json.dumps({column: model}))
    assert view.applied(TABLE, 1000).equals(TABLE.take(left))


def test_rows_come_in_the_order_of_the_grid() -> None:
    assert names(looked_at(sort="count:asc")) == ["gemm x", "a", None, "Gemm", "b", "a"]
    assert names(looked_at(sort="count:desc")) == ["a", "b", None, "Gemm", "a", "gemm x"]
    assert names(looked_at(sort="name:desc,count:desc"))[-4:] == ["a", "a", "Gemm", None]
    assert looked_at(sort="name:asc,count:desc").applied(TABLE)["count"].to_pylist() == [
        2, 2, 9, 1, 3, None,
    ]  # fmt: skip
    sums = looked_at(group="name", sort="count:asc").applied(TABLE)
    assert sums["count"].to_pylist()[-2:] == [3, 10]


def test_what_stands_for_the_rest_comes_last_however_it_is_sorted(page: Any, address: str) -> None:
    rows = "('others', 80234196), ('a', 2), ('b', 1)"
    query = f"select * from (values {rows}) as few(name, duration_ns)"
    wanted = {"duration_ns:asc": ["b", "a", "others"], "duration_ns:desc": ["a", "b", "others"]}
    for sort, in_order in wanted.items():
        page.goto(f"{address}/sql?o.query={quote(query)}&o.sort.sql={quote(sort)}")
        settled(page)
        page.wait_for_selector(".ag-row [col-id='name']")
        seen = page.evaluate(
            """() => [...document.querySelectorAll(".ag-center-cols-container .ag-row, .ag-pinned-left-cols-container .ag-row")].filter(r => r.querySelector("[col-id='name']")).sort((a, b) => a.getAttribute("row-index") - b.getAttribute("row-index"))
              .map(row => row.querySelector("[col-id='name']").textContent)"""  # noqa: E501
        )
        assert seen == in_order
    page.hover(".ag-row [col-id='duration_ns'] >> text=80.2 ms")
    page.wait_for_selector(".ag-tooltip")
    assert page.inner_text(".ag-tooltip") == "80,234,196 ns"


def test_the_rest_is_exported_last() -> None:
    table = pa.table({"name": ["others", None, "a"], "count": [9, 2, 1]})
    for sort, in_order in (
        ("count:asc", ["a", None, "others"]),
        ("count:desc", [None, "a", "others"]),
    ):
        assert looked_at(sort=sort).applied(table)["name"].to_pylist() == in_order


@pytest.mark.parametrize(
    "where",
    ["{", "[]", '"x"', "[" * 9999, '{"count": 3}', '{"count": {"filterType": "number"}}',
     json.dumps({"count": text("contains", "1")}), json.dumps({"name": number("equals", 1)}),
     json.dumps({"nothing": number("equals", 1)}), json.dumps({"count": number("equals", True)})],
)  # fmt: skip
def test_what_makes_no_sense_in_an_address_is_left_out(where: str) -> None:
    view = looked_at(where=where, sort="nothing:desc,count", group="nothing").of_table(TABLE)
    assert not view.where and view.group == "" and {name for name, _ in view.sort} <= {"count"}


def test_what_is_seen_is_linked_and_exported(page: Any, address: str, tmp_path: Path) -> None:
    query = "select rank, name, end_ns - start_ns as duration_ns from kernels"
    page.goto(f"{address}/sql?ranks=0,1&o.query={quote(query)}")
    settled(page)
    grid = "window.dash_ag_grid.getApi({type: 'grid', name: 'sql'})"
    rows = f"""() => {{
      const rows = [];
      {grid}.forEachNodeAfterFilterAndSort(n => rows.push([n.data.rank, n.data.name, n.data.duration_ns].map(String)));
      return rows;
    }}"""  # noqa: E501
    everything = page.evaluate(rows)
    page.evaluate(
        f"""() => {grid}.applyColumnState({{ state: [
          {{ colId: 'duration_ns', sort: 'desc', sortIndex: 0 }},
          {{ colId: 'rank', sort: 'asc', sortIndex: 1 }}] }})"""
    )
    # First the sort, then the filter, as by hand: a sort renders the grid anew, which drops a
    # filter that was set meanwhile.
    until(page, "() => location.search.includes('o.sort.sql')")
    page.evaluate(
        f"""() => {grid}.setFilterModel({{
          name: {{ filterType: 'text', type: 'contains', filter: 'GEMM' }} }})"""
    )
    until(page, "() => location.search.includes('where')")
    seen = page.evaluate(rows)
    assert seen == sorted(
        (row for row in everything if row[1] == "gemm"), key=lambda r: (-int(r[2]), int(r[0]))
    )
    assert 0 < len(seen) < len(everything)
    with page.expect_download() as download:
        page.click("a.export >> text=CSV")
    assert download.value.suggested_filename == "two_sql_ranks-0-1.csv"
    download.value.save_as(tmp_path / "seen.csv")
    with (tmp_path / "seen.csv").open(newline="") as file:
        assert [list(row.values()) for row in csv.DictReader(file)] == seen
    page.goto(page.url)
    settled(page)
    until(page, f"() => !!{grid}")
    assert page.evaluate(rows) == seen, "a copied link opens the same table"
