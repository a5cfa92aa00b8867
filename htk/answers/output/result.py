"""An answer: a table, the question it answers, and what it rests on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from htk.base.columns.arrow import plain_text
from htk.base.core.extras import require_extra
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields
from htk.base.schema import (
    ABSOLUTE_TIMES,
    BOOL,
    INT32,
    INT64,
    SCHEMA_VERSION,
    STRING,
    doc_of,
    unit_of,
)

MOMENTS = {*ABSOLUTE_TIMES, "reference_ns"}

_FACES: dict[str, Callable[[], Callable[..., Any]]] = {}


def register_face(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Register what draws a result as `name`; `load` imports it when it is first used."""
    _FACES[name] = load


def load_face(name: str) -> Callable[..., Any]:
    """Return what draws a result as `name`: text, html, figure or timeline."""
    if name not in _FACES:
        raise UsageError(f"no {name} of a result here: open the trace with htk.open")
    return _FACES[name]()


@dataclass(frozen=True, repr=False)
class Result:
    """The answer to a question: a table, the question, and the coverage the answer rests on.

    >>> import htk
    >>> answer = htk.open("sample").time_breakdown()
    >>> answer.columns[:5]
    ['rank', 'device', 'cycle', 'step', 'complete']
    >>> answer["rank"].to_pylist() == [row["rank"] for row in answer]
    True
    """

    analysis: Label
    table: pa.Table
    coverage: Facts = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Column names, in order."""
        return list(self.table.column_names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: each column's type and, in its metadata, what it means."""
        return self.table.schema

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.table.num_rows, self.table.num_columns

    def head(self, n: int = 5) -> "Result":
        """Return the first `n` rows as a result of their own.

        >>> import htk
        >>> htk.open("sample").kernel_top().head(2).shape[0]
        2
        """
        return Result(self.analysis, self.table.slice(0, min(max(n, 0), len(self))), self.coverage)

    def since_start(self) -> "Result":
        """Return the answer with moments told from the recording's start, as `--from` takes them.

        JavaScript holds integers up to 2**53, and moments of a clock are larger; `origin_ns` of
        the coverage, the start, is a text then.

        >>> import htk
        >>> answer = htk.open("sample").step_times().since_start()
        >>> max(answer["start_ns"].to_pylist()) < 2**53
        True
        """
        import pyarrow.compute as pc

        origin = int(self.coverage.get("origin_ns") or 0)
        table = self.table
        for index, column in enumerate(table.schema):
            if column.name in MOMENTS:
                table = table.set_column(index, column, pc.subtract(table[index], origin))
        return Result(self.analysis, table, {**self.coverage, "origin_ns": str(origin)})

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """Return one column, e.g. `answer["total_ns"]`."""
        if name not in self.table.column_names:
            from difflib import get_close_matches

            near = get_close_matches(str(name), self.columns, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(self.columns)}"
            raise KeyError(f"{self.analysis.name} has no column {name!r}{hint}")
        return self.table[name]

    def __iter__(self) -> Iterator[Fields]:
        """Yield the rows, each a dict by column name."""
        for batch in self.table.to_batches():
            yield from batch.to_pylist()

    def to_arrow(self) -> pa.Table:
        """Return the Arrow table."""
        return self.table

    def to_pandas(self) -> Any:
        """Return a DataFrame. A column has one type whatever the file: integers stay integers.

        Integers, booleans and texts are pandas' nullable types, in which <NA> is what was not
        recorded; floating-point numbers are float64 with NaN.

        >>> import htk
        >>> frame = htk.open("sample").kernel_top(n=3).to_pandas()
        >>> str(frame["total_ns"].dtype)
        'Int64'
        """
        require_extra("pandas", "to_pandas()")
        import pandas

        nullable = {
            pa.int8(): pandas.Int8Dtype(),
            pa.int16(): pandas.Int16Dtype(),
            INT32: pandas.Int32Dtype(),
            INT64: pandas.Int64Dtype(),
            pa.uint64(): pandas.UInt64Dtype(),
            BOOL: pandas.BooleanDtype(),
            STRING: pandas.StringDtype(),
        }
        return plain_text(self.table).to_pandas(types_mapper=nullable.get)

    def to_polars(self) -> Any:
        """Return a Polars DataFrame; it needs `pip install polars`."""
        require_extra("polars", "to_polars()")
        import polars

        return polars.from_arrow(plain_text(self.table))  # no text function takes a categorical

    def to_pylist(self) -> list[Fields]:
        """Return the rows, each a dict by column name; a value that was not recorded is None.

        >>> import htk
        >>> [row["rank"] for row in htk.open("sample").time_breakdown().to_pylist()]
        [0, 1]
        """
        rows: list[Fields] = self.table.to_pylist()
        return rows

    def plot(self, *, dark: bool = False) -> Any:
        """Return the answer's chart, a plotly figure.

        Args:
            dark: draw for a dark page.

        >>> import htk
        >>> type(htk.open("sample").time_breakdown().plot()).__name__
        'Figure'
        """
        if self.analysis.chart is None:
            raise UsageError(f"{self.analysis.name} has no picture; its table is in .table")
        return load_face("figure")(self.table, self.analysis.chart, dark=dark)

    def timeline(self) -> Any:
        """Return the rows that have a start and an end on a timeline, a notebook widget."""
        return load_face("timeline")(self)

    def to_json(self) -> Fields:
        """Return one object of plain values: analysis, columns, rows and coverage.

        >>> import htk
        >>> sorted(htk.open("sample").kernel_top().to_json())
        ['analysis', 'columns', 'coverage', 'rows', 'schema_version']
        """
        return {
            "analysis": self.analysis.name,
            "schema_version": SCHEMA_VERSION,
            "columns": [
                {
                    "name": f.name,
                    "type": _spell_kind(f.type),
                    "unit": unit_of(f.name),
                    "doc": doc_of(f),
                }
                for f in self.table.schema
            ],
            "rows": self.to_pylist(),
            "coverage": dict(self.coverage),
        }

    def save(self, path: str | Path) -> Path:
        """Write the whole answer to a file and return its path.

        Args:
            path: where to write; its ending chooses the form: .csv, .xlsx, .parquet, .arrow, .md,
                .json, or .html (the first 500 rows).

        >>> import htk, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> htk.open("sample").kernel_top().save(f"{folder}/kernels.csv").name
        'kernels.csv'
        """
        load_face("file")(self, str(path))
        return Path(path)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def _repr_html_(self) -> str:
        html: str = load_face("html")(self)
        return html

    def __repr__(self) -> str:
        text: str = load_face("text")(self, "table", limit=20)
        return text


def _spell_kind(kind: pa.DataType) -> str:
    return "string" if pa.types.is_dictionary(kind) else str(kind)
