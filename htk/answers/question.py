"""Your own question about a recording, from a function in a notebook: without a package.

@htk.question
def longest(kernels, *, n: int = 3):
    "Which kernels ran longest?"
    return kernels.to_pandas().assign(ns=lambda k: k.end_ns - k.start_ns).nlargest(n, "ns")

trace.longest(n=5)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from htk.analyses import ANALYSES, MenuEntry
from htk.base.core.analysis import Analysis
from htk.base.errors import UsageError
from htk.base.schema import DERIVED, TABLES

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NO_COLUMNS = pa.schema([])  # they are those of each answer


class OwnQuestion(Analysis[...]):
    """A question whose function may answer with any table: Arrow's, pandas', Polars', or rows."""

    def checked(self, result: Any) -> pa.Table:
        if isinstance(result, pa.Table):
            return result
        if isinstance(result, list):
            return pa.Table.from_pylist(result)
        if hasattr(result, "to_arrow"):
            return result.to_arrow()
        try:
            return pa.Table.from_pandas(result, preserve_index=False)
        except (AttributeError, TypeError, pa.ArrowException) as why:
            kind = type(result).__name__
            raise UsageError(
                f"{self.name} answered with a {kind}, not with a table: {why}"
            ) from None


@dataclass(frozen=True)
class _OwnEntry(MenuEntry):
    """A question of the menu that a notebook holds."""

    analysis: OwnQuestion

    def load(self, name: str) -> Analysis[...]:
        return self.analysis


def question(function: _Function) -> _Function:
    """Make a function a question of every trace; return it as it is.

    Its positional parameters are called as the tables, or questions, that it reads, its
    keyword-only ones are its options, its docstring is the question. It returns an Arrow table, a
    DataFrame, or a list of rows.

    Args:
        function: whose name becomes that of the question.

    >>> import htk
    >>> @htk.question
    ... def launches_a_kernel(kernels, launches, *, times: int = 1):
    ...     "How many launches has a kernel?"
    ...     return [{"ratio": times * launches.num_rows / kernels.num_rows}]
    >>> htk.open("sample").launches_a_kernel(times=2).columns
    ['ratio']
    """
    own = own_question(function)
    held = ANALYSES.get(own.name)
    if held is not None and not isinstance(held, _OwnEntry):
        raise UsageError(f"htk has a question {own.name!r}: give the function another name")
    ANALYSES[own.name] = _OwnEntry(f"own.{own.name}", own.question or own.name, own)
    return function


def own_question(function: Callable[..., Any]) -> OwnQuestion:
    """Return a function as a question, which the menu does not hold."""
    own = OwnQuestion(function, _NO_COLUMNS)
    unknown = [read for read in own.reads if read not in {*TABLES, *DERIVED, *ANALYSES}]
    if unknown:
        raise UsageError(
            f"{own.name} reads {unknown[0]!r}, which is no table and no question; options are "
            "keyword-only: put * before them"
        )
    return own
