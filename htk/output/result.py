"""An answer: a table, the question it answers, and what it rests on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from htk.core.analysis import Analysis
from htk.core.extras import require
from htk.errors import UsageError
from htk.schema import SCHEMA_VERSION, doc_of
from htk.schema.columns import unit_of

_FACES: dict[str, Callable[[], Callable[..., Any]]] = {}


def register_face(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Register what draws a result as `name`; `load` imports it when it is first used."""
    _FACES[name] = load


def face(name: str) -> Callable[..., Any]:
    """Return what draws a result as `name`: text, html, figure or timeline."""
    if name not in _FACES:
        raise UsageError(f"no {name} of a result here: open the trace with htk.open")
    return _FACES[name]()


@dataclass(frozen=True, repr=False)
class Result:
    """What an analysis found. Tables of it go where you work: pandas, Polars, Arrow, a plot."""

    analysis: Analysis[...]
    table: pa.Table
    coverage: Mapping[str, Any] = field(default_factory=dict)

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> Any:
        require("pandas", "to_pandas()")
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        require("polars", "to_polars()")
        import polars

        return polars.from_arrow(self.table)

    def to_pylist(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows

    def plot(self, *, dark: bool = False) -> Any:
        """The picture of the answer, a plotly figure."""
        if self.analysis.chart is None:
            raise UsageError(f"{self.analysis.name} has no picture; its table is in .table")
        return face("figure")(self.table, self.analysis.chart, dark=dark)

    def timeline(self) -> Any:
        """The rows that have a start and an end on a timeline, a widget of a notebook."""
        return face("timeline")(self)

    def _repr_html_(self) -> str:
        html: str = face("html")(self)
        return html

    def __repr__(self) -> str:
        text: str = face("text")(self, "table", limit=20)
        return text

    def to_json(self) -> dict[str, Any]:
        """One object: the question, its columns, its rows, what it rests on."""
        return {
            "analysis": self.analysis.name,
            "schema_version": SCHEMA_VERSION,
            "columns": [
                {
                    "name": f.name,
                    "type": _plain(f.type),
                    "unit": unit_of(f.name),
                    "doc": doc_of(f),
                }
                for f in self.table.schema
            ],
            "rows": self.to_pylist(),
            "coverage": dict(self.coverage),
        }

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.table.num_rows)


def _plain(kind: pa.DataType) -> str:
    return "string" if pa.types.is_dictionary(kind) else str(kind)
