"""How a table is looked at: grouped, filtered by its columns, sorted.

The address holds it, and what is exported are the rows that are seen.

Filters are those of the browser's grid, and mean here what they mean there.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.answers.output.one_sentence import REST_OF_NAMES
from htk.base.mappings import Facts, Fields
from htk.base.schema import ABSOLUTE_TIMES, STRING, unit_of
from htk.dashboard.url_state import UrlState

_MOST_SORTED = 4
_MOST_CONDITIONS = 20
_Compared = Callable[[Any, Any], Any]
_NUMBERS: dict[str, _Compared] = {
    "equals": pc.equal,
    "notEqual": pc.not_equal,
    "lessThan": pc.less,
    "lessThanOrEqual": pc.less_equal,
    "greaterThan": pc.greater,
    "greaterThanOrEqual": pc.greater_equal,
}
_TEXTS: dict[str, _Compared] = {
    "contains": pc.match_substring,
    "equals": pc.equal,
    "startsWith": pc.starts_with,
    "endsWith": pc.ends_with,
}
_NEGATED = {"notContains": "contains", "notEqual": "equals"}  # of texts; null is none of them


@dataclass(frozen=True)
class TableView:
    """What a visitor made of one table."""

    group: str = ""
    sort: tuple[tuple[str, bool], ...] = ()  # columns, and whether the largest come first
    where: Facts = field(default_factory=dict)  # the grid's filters, by column

    @classmethod
    def from_url(cls, view: UrlState, key: str) -> "TableView":
        """Return what the address says of a table; what makes no sense there is left out."""
        sort = [pair.rpartition(":") for pair in view.table_option("sort", key).split(",") if pair]
        try:
            where = json.loads(view.table_option("where", key) or "{}")
        except (ValueError, RecursionError):
            where = {}
        where = where if isinstance(where, dict) else {}
        return cls(
            view.table_option("group", key),
            tuple((name, way == "desc") for name, _, way in sort[:_MOST_SORTED]),
            {name: model for name, model in where.items() if _list_conditions(model)},
        )

    def of_table(self, table: pa.Table) -> "TableView":
        """Return this view without columns that a table lacks."""
        names = set(table.column_names)
        where = {n: m for n, m in self.where.items() if n in names and _is_for(table[n].type, m)}
        sort = tuple(pair for pair in self.sort if pair[0] in names)
        group = self.group if self.group in names else ""
        return TableView(group, sort, where)

    def applied(self, table: pa.Table, origin: int = 0) -> pa.Table:
        """Return the rows that are seen, in their order; times of day are told from `origin` on."""
        view = self.of_table(table)
        if view.group:
            table = group_rows(table, view.group)
            view = self.of_table(table)
        for name, model in view.where.items():
            shift = origin if name in ABSOLUTE_TIMES else 0
            table = table.filter(_match_filter(_decode_column(table[name]), model, shift))
        for name, descending in reversed(view.sort):
            table = table.take(_order_by_column(_decode_column(table[name]), descending))
        return _put_rest_last(table)


def group_rows(table: pa.Table, by: str) -> pa.Table:
    """Return the rows of one group as one: what can be added up, added up."""
    adds = [f.name for f in table.schema if _is_additive(f)]
    plain = table.select([by, *adds])
    plain = plain.set_column(0, by, plain[by].cast(STRING))
    sums = plain.group_by(by).aggregate([(by, "count"), *((name, "sum") for name in adds)])
    sums = sums.select([by, f"{by}_count", *(f"{name}_sum" for name in adds)])
    sums = sums.rename_columns([by, "rows", *adds])
    return sums.sort_by([(adds[0], "descending")]) if adds else sums


def _put_rest_last(table: pa.Table) -> pa.Table:
    """Return the rows with what stands for the rest of a list at its end, however it is sorted."""
    if "name" not in table.column_names:
        return table
    names = _decode_column(table["name"])
    if not pa.types.is_string(names.type):
        return table
    is_rest = pc.fill_null(pc.equal(names, REST_OF_NAMES), False)
    return pa.concat_tables([table.filter(pc.invert(is_rest)), table.filter(is_rest)])


def _is_additive(field: pa.Field) -> bool:
    """Counts and sums of a thing; no means, extremes, shares, times of day or numbers of things."""
    name = field.name
    if not pa.types.is_integer(field.type) or name in ABSOLUTE_TIMES:
        return False
    if any(word in name for word in ("mean", "min", "max", "p50", "p95", "std", "size", "per_")):
        return False
    return unit_of(name) in ("ns", "bytes") or name in ("count", "kernels", "collectives")


def _list_conditions(model: Any) -> list[Fields]:
    """Return the single conditions of a column's filter; none where it is not one of ours."""
    if not isinstance(model, dict) or model.get("filterType") not in ("text", "number"):
        return []
    conditions = model.get("conditions", [model])
    if not isinstance(conditions, list) or not 1 <= len(conditions) <= _MOST_CONDITIONS:
        return []
    return conditions if all(_is_whole(c, model["filterType"]) for c in conditions) else []


def _is_whole(condition: Any, kind: str) -> bool:
    """Return whether a condition says what is compared with what."""
    if not isinstance(condition, dict):
        return False
    way = condition.get("type")
    value = condition.get("filter")
    if way in ("blank", "notBlank"):
        return True
    if kind == "text":
        return isinstance(value, str) and (way in _TEXTS or way in _NEGATED)
    if way == "inRange":
        return _is_number(value) and _is_number(condition.get("filterTo"))
    return way in _NUMBERS and _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_for(column: pa.DataType, model: Facts) -> bool:
    numeric = pa.types.is_integer(column) or pa.types.is_floating(column)
    return bool(numeric == (model["filterType"] == "number"))


def _decode_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as texts, which are compared by what they say and not by when they came."""
    return column.cast(STRING) if pa.types.is_dictionary(column.type) else column


def _order_by_column(column: pa.ChunkedArray, descending: bool) -> Any:
    """Return the rows by a column's values: what is null comes first, or last where descending."""
    keys = pa.table({"recorded": pc.is_valid(column).cast(pa.int8()), "value": column})
    way = "descending" if descending else "ascending"
    return pc.sort_indices(keys, sort_keys=[("recorded", way), ("value", way)])


def _match_filter(column: pa.ChunkedArray, model: Facts, shift: int) -> Any:
    masks = [
        _match_condition(column, condition, model["filterType"], shift)
        for condition in _list_conditions(model)
    ]
    combine = pc.or_ if model.get("operator") == "OR" else pc.and_
    mask = masks[0]
    for other in masks[1:]:
        mask = combine(mask, other)
    return mask


def _match_condition(column: pa.ChunkedArray, condition: Facts, kind: str, shift: int) -> Any:
    """Return which values meet a condition; what was not recorded meets none but `blank`, and the
    negated ones of texts."""
    way = str(condition["type"])
    value = condition.get("filter")
    if way in ("blank", "notBlank"):
        blank = pc.is_null(column)
        if kind == "text":
            blank = pc.or_(
                blank, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), ""), False)
            )
        return blank if way == "blank" else pc.invert(blank)
    if kind == "text":
        compare = _TEXTS[_NEGATED.get(way, way)]
        lower = pc.utf8_lower(column.cast(STRING))
        met = pc.fill_null(compare(lower, str(value).lower()), False)
        return pc.invert(met) if way in _NEGATED else met
    if way == "inRange":  # neither end belongs to it
        low = _shift_value(value, shift)
        high = _shift_value(condition["filterTo"], shift)
        met = pc.and_(pc.greater(column, low), pc.less(column, high))
    else:
        met = _NUMBERS[way](column, _shift_value(value, shift))
    return pc.fill_null(met, False)


def _shift_value(value: Any, shift: int) -> pa.Scalar:
    is_integer = isinstance(value, int) or float(value).is_integer()
    return pa.scalar(int(value) + shift if is_integer else float(value) + shift)
