"""An answer in one sentence with its number, found as its chart says how it likes to be drawn."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.answers.output.figure_columns import (
    CODES,
    NO_NAME,
    WITH_NUMBER,
    series_of,
    words_of,
)
from htk.answers.output.figures import recorded_chart
from htk.answers.output.result import Result
from htk.base.columns.arrow import plain_type
from htk.base.core.chart import Bar, Heatmap, Line, Scatter, TimelineChart
from htk.base.core.humanize import format_value, make_sentence, pluralize_count, shorten_apart
from htk.base.mappings import Fields
from htk.base.schema import STRING
from htk.base.schema.columns import unit_of

_SHARES = 4  # that are named of a whole
_SAID = ("finding", "verdict", "reason", "evidence")  # columns that hold sentences
REST_OF_NAMES = "others"  # a table's row for all names that it does not list
_ADD_UP = ("_ns", "_bytes", "_ms")  # no median or highest of them
_MODELLED = "modelled_pct_of_time_launched_here_less_communication"
_WHOLE_PCT = 90  # of the GPU time: a figure of less says of how much
_WORDS = {"mfu_pct": "MFU"}
_ROUNDED = 0.1  # % of a whole
_LETTERS = 60  # of a name


def state_answer(result: Result) -> str:
    """Return the answer in a sentence with its number; nothing where there are no rows."""
    answer = _state_verdict(result)
    modelled = result.coverage.get(_MODELLED)
    if answer and modelled is not None and modelled < _WHOLE_PCT:
        return f"{answer[:-1]}, of the {modelled:.1f} % of GPU time that is modelled."
    return answer


def _state_verdict(result: Result) -> str:
    verdict = result.coverage.get("verdict")
    chart, table = result.analysis.chart, result.table
    if isinstance(verdict, str) and verdict and chart is None:
        return make_sentence(verdict)
    if not table.num_rows:
        return ""
    if chart is None:
        rows = table.slice(0, 1).to_pylist()
        finding = next((str(rows[0][c]) for c in _SAID if rows[0].get(c)), "")
        return make_sentence(finding) if finding else ""
    match recorded_chart(chart, table):
        case Bar(stacked=True, y=tuple(ys)) if len(ys) > 1 and _are_parts(table, ys):
            return _state_shares([(words_of(y), _sum_columns(table, [y])) for y in ys], ys[0])
        case Bar(stacked=True, y=str(y), color=str(color), x=x) if color != x and _are_parts(
            table, [y]
        ):
            parts = series_of(table, y, color)
            return _state_shares(
                [(n, _sum_columns(table.take(rows), [y])) for n, rows, _ in parts], y
            )
        case Bar(y=str(y), color=None, x=x) if _is_whole(table, y):
            names = [str(name) for name in table[x].to_pylist()]
            amounts = [float(value or 0) for value in table[y].to_pylist()]
            return _state_shares(zip(names, amounts, strict=True), y)
        case Bar(x=x, y=y, color=color):
            first = y if isinstance(y, str) else y[0]
            return _state_highest(table, first, [c for c in (x, color) if c])
        case Scatter(y=y, color=color, x=x):
            return _state_highest(table, y, [c for c in (color, x) if c])
        case Heatmap(x=x, y=y, value=value):
            return _state_highest(table, value, [y, x])
        case Line(y=y):
            column = y if isinstance(y, str) else y[0]
            return _state_spread(table, column)
        case TimelineChart(start=start, end=end, lane=lane, color=color):
            return _state_longest(table, start, end, [c for c in (color, lane) if c])


def _are_parts(table: pa.Table, columns: Sequence[str]) -> bool:
    """Return whether columns hold what adds up: amounts, none below zero."""
    kinds = (c.endswith(_ADD_UP) or _is_count(table, c) for c in columns)
    return all(kinds) and all((pc.min(table[c]).as_py() or 0) >= 0 for c in columns)


def _is_whole(table: pa.Table, column: str) -> bool:
    """Return whether the rows are all of something, as their shares of it say."""
    share = f"{column.removesuffix('_ns')}_pct"
    return share in table.column_names and abs(_sum_columns(table, [share]) - 100) < _ROUNDED


def _is_count(table: pa.Table, column: str) -> bool:
    return not unit_of(column) and pa.types.is_integer(table[column].type)


def _sum_columns(table: pa.Table, columns: Sequence[str]) -> float:
    return float(sum(pc.sum(table[c]).as_py() or 0 for c in columns))


def _state_shares(parts: Iterable[tuple[str, float]], column: str) -> str:
    added: defaultdict[str, float] = defaultdict(float)
    for name, amount in parts:
        added["without a name" if name == NO_NAME else name] += amount
    total = sum(added.values())
    if not total:
        return ""
    largest = sorted(added.items(), key=lambda part: -part[1])
    shares = [(name, 100 * amount / total) for name, amount in largest if amount]
    words = ", ".join(f"{name} {share:.1f} %" for name, share in shares[:_SHARES])
    left = sum(share for _, share in shares[_SHARES:])
    rest = f", others {left:.1f} %" if left else ""
    return f"Of {_format_amount(total, column)} in all: {words}{rest}."


def _format_amount(value: float, column: str) -> str:
    is_count = not unit_of(column) and float(value).is_integer()
    return format_value(int(value) if is_count else value, unit_of(column))


def _state_highest(table: pa.Table, column: str, named_by: Sequence[str]) -> str:
    """Return whose value is highest, and the next one or, of ranks and steps, the lowest."""
    kept = [name for name in dict.fromkeys((*named_by, "rank")) if name in table.column_names]
    wanted = [*kept, *([column] if column not in kept else [])]
    rows = [r for r in _list_plain_rows(table, wanted) if r[column] is not None]
    rows = [r for r in rows if REST_OF_NAMES not in (r[name] for name in kept)] or rows
    if not rows:
        return ""
    rows.sort(key=lambda r: -r[column])
    names = _name_rows(rows, kept)
    values = [_format_amount(r[column], column) for r in rows]
    what = _WORDS.get(column, words_of(column))
    if len(set(values)) == 1 and len(rows) > 1:
        return f"All {len(rows):,} rows have the same {what}: {values[0]}."
    first = f"Highest {what}: {names[0]}, {values[0]}"
    if len(rows) == 1:
        return f"{first}."
    numbered = kept[0] in WITH_NUMBER
    last = -1 if numbered else 1
    return f"{first}; {'lowest' if numbered else 'then'}: {names[last]}, {values[last]}."


def _name_rows(rows: Sequence[Fields], columns: Sequence[str]) -> list[str]:
    """Return what tells each row: names that differ never look the same."""
    words = {c: {str(r[c]) for r in rows} for c in columns if _is_text(rows, c)}
    short = {c: shorten_apart(names, _LETTERS) for c, names in words.items()}
    telling = [c for c in columns if c != "rank" or len({r[c] for r in rows}) > 1] or columns
    return [
        ", ".join(
            _name_value(c, short[c][str(r[c])] if c in short else r[c])
            for c in telling
            if r[c] is not None
        )
        or f"no {words_of(telling[0])}"
        for r in rows
    ]


def _is_text(rows: Sequence[Fields], column: str) -> bool:
    return any(isinstance(row[column], str) for row in rows)


def _name_value(column: str, value: Any) -> str:
    if column in CODES:
        return str(value).replace("_", " ")
    if isinstance(value, str) and column not in WITH_NUMBER:
        return value
    if unit := unit_of(column):
        return f"{words_of(column)} {format_value(value, unit)}"
    return f"{words_of(column)} {value}"


def _state_spread(table: pa.Table, column: str) -> str:
    values = np.array([v for v in table[column].to_pylist() if v is not None], np.float64)
    if not len(values):
        return ""
    low = _format_amount(float(np.min(values)), column)
    middle = _format_amount(float(np.median(values)), column)
    high = _format_amount(float(np.max(values)), column)
    what = words_of(column)
    what = what[:1].upper() + what[1:]
    if low == high:
        return f"{what}: {middle} throughout."
    return f"{what}: {middle} at the median, from {low} to {high}."


def _state_longest(table: pa.Table, start: str, end: str, named_by: Sequence[str]) -> str:
    rows = _list_plain_rows(table, [start, end, *dict.fromkeys(named_by)])
    rows = [{**r, "length": r[end] - r[start]} for r in rows if None not in (r[start], r[end])]
    if not rows:
        return ""
    longest = max(rows, key=lambda r: r["length"])
    name = _name_rows([longest], named_by)[0]
    length = _format_amount(longest["length"], start)
    return f"The longest of {pluralize_count(len(rows), 'row')}: {name}, {length}."


def _list_plain_rows(table: pa.Table, columns: Sequence[str]) -> list[Fields]:
    plain = {c: table[c] for c in columns}
    texts = {c: v.cast(STRING) for c, v in plain.items() if plain_type(v.type) == STRING}
    rows: list[Fields] = pa.table({**plain, **texts}).to_pylist()
    return rows
