"""What an analysis is: a pure function from tables to one table, and its label.

Positional parameters name what it reads: tables of the vocabulary, or other analyses; one that is
`Annotated[NamedTables, names]` is given all tables of those names, by name; one that is
`Annotated[TablesLater, names]` what makes them.
Keyword-only parameters are its options: `n: Annotated[int, "Rows to show."] = 10`. Who replays
steps takes the recording itself too, as the keyword-only parameter `recording`.
The first line of its docstring is the question. The command line, the dashboard, the notebook
and the docs all read this one label.
"""

import inspect
import json
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, ParamSpec

import pyarrow as pa

from htk.base.core.chart import Chart
from htk.base.core.label import Label
from htk.base.core.spread import WHOLE, SpreadLabel
from htk.base.errors import SchemaMismatch
from htk.base.mappings import Facts, Fields, NamedTables

P = ParamSpec("P")
COVERAGE = b"coverage"
_RECORDING = "recording"
Later = Callable[[], pa.Table]  # of a parameter: a table that is made when it is called for
TablesLater = Mapping[str, Later]


@dataclass(frozen=True)
class Option:
    """One thing that can be tuned."""

    name: str
    type: Any  # int, float, str, bool, Literal[…], X | None, tuple[X, ...]
    default: Any
    doc: str


@dataclass(frozen=True)
class Analysis(Generic[P]):
    function: Callable[P, pa.Table]
    returns: pa.Schema
    chart: Chart | None = None
    needs: tuple[str, ...] = ()  # tables that must hold rows for the question to make sense
    # By table, the columns that are null for ranks without rows in it: not recorded is not zero.
    null_without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spreads: tuple[SpreadLabel, ...] = ()  # the first that holds; else whole
    is_of_activities: bool = False  # what it reads of the host only names GPU activities

    def spread(self, options: Mapping[str, object] = MappingProxyType({})) -> SpreadLabel:
        """Return what the answer to these options is made of."""
        filled = self.filled(options)
        return next((spread for spread in self.spreads if spread.holds(filled)), WHOLE)

    def filled(self, options: Mapping[str, object]) -> Fields:
        """Return all options, those not named at their defaults."""
        return {name: options.get(name, option.default) for name, option in self.options.items()}

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def label(self) -> Label:
        """Return the label that its results carry."""
        return Label(self.name, self.question, self.chart)

    @cached_property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def question(self) -> str:
        return self.doc.partition("\n")[0]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for p in self._positional for name in _names_by(p) or (p.name,))

    @cached_property
    def options(self) -> dict[str, Option]:
        hints = typing.get_type_hints(self.function, include_extras=True)
        return {
            p.name: _build_option(p.name, hints[p.name], p.default)
            for p in self._list_parameters()
            if p.kind is p.KEYWORD_ONLY and p.name != _RECORDING
        }

    @cached_property
    def takes_recording(self) -> bool:
        """Whether it takes the recording itself, beside the tables that it names."""
        return any(p.name == _RECORDING for p in self._list_parameters())

    @cached_property
    def later(self) -> frozenset[str]:
        """What it reads only where its options or other tables call for it."""
        at_once = {
            name for p in self._positional if not _is_later(p) for name in _names_by(p) or (p.name,)
        }
        return frozenset(self.reads) - at_once

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> pa.Table:
        """Return the answer, its schema checked and its columns documented. Of what it reads later
        the table itself may be given, too."""
        tables: Iterator[Any] = iter(args)
        arguments = [_build_argument(p, tables) for p in self._positional if p.name not in kwargs]
        return self.checked(self.function(*arguments, **kwargs))  # type: ignore[arg-type]

    def checked(self, result: pa.Table) -> pa.Table:
        """Return an answer with its columns documented; SchemaMismatch if it has others."""
        if not result.schema.equals(self.returns, check_metadata=False):
            raise SchemaMismatch(
                f"{self.name} returned {result.schema.remove_metadata()}, "
                f"declared {self.returns.remove_metadata()}"
            )
        kept = {COVERAGE: (result.schema.metadata or {}).get(COVERAGE, b"{}")}
        return pa.table(result.columns, schema=self.returns.with_metadata(kept))

    @cached_property
    def _positional(self) -> list[inspect.Parameter]:
        return [p for p in self._list_parameters() if p.kind is not p.KEYWORD_ONLY]

    def _list_parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())


def _names_by(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return the tables that a parameter is given by name; none: it is a table itself."""
    kind, *metadata = typing.get_args(parameter.annotation) or (None,)
    return tuple(metadata[0]) if kind in (TablesLater, NamedTables) else ()


def _is_later(parameter: inspect.Parameter) -> bool:
    kind, *_ = typing.get_args(parameter.annotation) or (None,)
    return bool(parameter.annotation == Later or kind == TablesLater)


def _build_argument(parameter: inspect.Parameter, tables: Iterator[Any]) -> object:
    """Return what a parameter is given of the tables that come next."""
    names = _names_by(parameter)
    read = [next(tables) for _ in names or (parameter.name,)]
    if _is_later(parameter):
        read = [_wrap_later(table) for table in read]
    return dict(zip(names, read, strict=True)) if names else read[0]


def _wrap_later(table: Any) -> Later:
    return (lambda: table) if isinstance(table, pa.Table) else table


def analysis(
    *,
    returns: pa.Schema,
    chart: Chart | None = None,
    needs: tuple[str, ...] = (),
    null_without: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    spread: SpreadLabel | tuple[SpreadLabel, ...] = (),
    is_of_activities: bool = False,
) -> Callable[[Callable[P, pa.Table]], Analysis[P]]:
    """Label a function as an analysis."""
    spreads = (spread,) if isinstance(spread, SpreadLabel) else spread
    return lambda function: Analysis(
        function, returns, chart, needs, null_without, spreads, is_of_activities
    )


def with_coverage(table: pa.Table, **facts: object) -> pa.Table:
    """The table, with facts on what it rests on (what was linked, dropped, missing, inferred)."""
    metadata = dict(table.schema.metadata or {})
    recorded = json.loads(metadata.get(COVERAGE, b"{}"))
    metadata[COVERAGE] = json.dumps(recorded | facts).encode()
    return table.replace_schema_metadata(metadata)


def coverage_of(table: pa.Table) -> Facts:
    """Return the facts that `with_coverage` put there."""
    facts: Fields = json.loads((table.schema.metadata or {}).get(COVERAGE, b"{}"))
    return facts


def _build_option(name: str, hint: Any, default: Any) -> Option:
    if typing.get_origin(hint) is typing.Annotated:
        kind, doc = typing.get_args(hint)[:2]
        return Option(name, kind, default, doc)
    return Option(name, hint, default, "")
