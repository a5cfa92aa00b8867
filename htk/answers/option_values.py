"""Values of options, checked alike for Python, SQL and agents, as the command line does."""

import math
import operator
import types
import typing
from collections.abc import Iterable
from numbers import Real
from typing import Any

from htk.base.core.analysis import Analysis, Option
from htk.base.core.humanize import shorten_text
from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields

_MOST = 2**53  # beyond, neither floats nor JavaScript count each


def checked_options(analysis: Analysis[...], options: Facts) -> Fields:
    """Return options with values of their types; UsageError names the one that is wrong."""
    for unknown in sorted(set(options) - set(analysis.options)):
        near = nearest_word(unknown, analysis.options)
        rest = f"did you mean {near!r}?" if near else f"it has {', '.join(analysis.options)}"
        raise UsageError(f"{analysis.name} has no option {unknown!r}; {rest}")
    return {
        name: _check_value(analysis.options[name], analysis.options[name].type, value)
        for name, value in options.items()
    }


def _check_value(option: Option, kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    inner = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _check_value(option, next(i for i in inner if i is not type(None)), value)
    if origin is typing.Literal:
        return _check_choice(option, inner, value)
    if origin is tuple:
        listed = (value,) if isinstance(value, str) or not hasattr(value, "__iter__") else value
        return tuple(_check_value(option, inner[0], entry) for entry in listed)
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise _build_value_error(option, value, "True or False")
    if kind is int:
        return _check_integer(option, value)
    if kind is float:
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        raise _build_value_error(option, value, "a finite number")
    if kind is str and not isinstance(value, str):
        raise _build_value_error(option, value, "a text")
    return value


def nearest_word(word: str, words: Iterable[str]) -> str | None:
    """Return the one of `words` that is spelt like `word`, or None."""
    from difflib import get_close_matches  # seldom needed, and every question imports this module

    return next(iter(get_close_matches(word, list(words), 1)), None)


def _check_choice(option: Option, choices: tuple[Any, ...], value: Any) -> Any:
    if value in choices:
        return value
    near = nearest_word(str(value), map(str, choices))
    rest = f"did you mean {near!r}?" if near else f"it is one of {', '.join(map(str, choices))}"
    raise UsageError(f"{option.name}={value!r}: {rest}")


def _check_integer(option: Option, value: Any) -> int:
    try:
        number = operator.index(value)  # whole numbers of NumPy too
    except TypeError:
        raise _build_value_error(option, value, "a whole number") from None
    if isinstance(value, bool):
        raise _build_value_error(option, value, "a whole number")
    if number < 0 <= (option.default or 0):
        raise UsageError(f"{option.name}={value!r} must be ≥ 0")
    if abs(number) > _MOST:
        raise _build_value_error(option, shorten_text(str(value)), f"a number of at most {_MOST:,}")
    return number


def _build_value_error(option: Option, value: Any, expected: str) -> UsageError:
    return UsageError(f"{option.name}={value!r} is not {expected}")
