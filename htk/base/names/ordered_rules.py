"""Ordered rules about names: plain words where they do, regular expressions where they must."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")
_IS_EXPRESSION = re.compile(r"[\\.|?*+()\[\]{}]|.\^|\$.")


class _Row(NamedTuple, Generic[Value]):
    value: Value
    words: tuple[str, ...]
    expression: re.Pattern[str] | None


class OrderedRules(Generic[Value]):
    """Rows of (value, patterns separated by blanks); the first row that matches a name decides.

    A pattern is a word that the name holds (`^` before it: at its beginning, `$` behind it: at its
    end), or a regular expression without blanks. Words are several times as quick as expressions,
    and nothing is compiled before a name is asked about.
    """

    def __init__(self, table: Sequence[tuple[Value, str]]) -> None:
        self._table = table

    def first(self, name: str) -> Value | None:
        """Return the value of the first row of which a pattern occurs in the name."""
        holds = f"^{name}$".__contains__
        for value, words, expression in self._rows:
            if any(map(holds, words)) or (expression is not None and expression.search(name)):
                return value
        return None

    @cached_property
    def _rows(self) -> list[_Row[Value]]:
        return [_build_row(value, patterns.split()) for value, patterns in self._table]


def _build_row(value: Value, patterns: list[str]) -> _Row[Value]:
    expressions = [pattern for pattern in patterns if _IS_EXPRESSION.search(pattern)]
    words = tuple(pattern for pattern in patterns if pattern not in expressions)
    expression = re.compile("|".join(expressions)) if expressions else None
    return _Row(value, words, expression)
