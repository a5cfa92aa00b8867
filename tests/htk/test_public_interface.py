"""What `htk` exports: documented, with examples that run."""

import doctest
import importlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

import htk
from htk.analyses import ANALYSES
from htk.whatif.api import WhatIf, whatif

_MODULES = (
    "htk.answers.ask",
    "htk.answers.question",
    "htk.faces.notebook.session",
    "htk.answers.output.result",
    "htk.recording.capture",
    "htk.whatif.api",
)
_CLASSES = (htk.Session, htk.Result, WhatIf)
_FUNCTIONS = (htk.open, htk.question, htk.run, htk.catalog, htk.capture, whatif)


def _methods(kind: type) -> list[Callable[..., Any]]:
    """Public methods that are defined by the class itself, not those of its questions."""
    return [
        value
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    ]


_PUBLIC = list(_FUNCTIONS) + [method for kind in _CLASSES for method in _methods(kind)]


@pytest.mark.parametrize("function", _PUBLIC, ids=lambda f: f.__qualname__)
def test_parameters_are_documented(function: Callable[..., Any]) -> None:
    doc = inspect.getdoc(function) or ""
    assert doc, "a public callable says what it returns"
    parameters = inspect.signature(function).parameters.values()
    # One of type Never refuses what is misspelt.
    names = [p.name for p in parameters if p.name != "self" and p.annotation is not typing.Never]
    if len(names) == 1 and f"`{names[0]}`" in doc:
        return
    missing = [n for n in names if f"    {n}: " not in doc]
    assert not missing, f"{function.__qualname__} does not document {missing}"


@pytest.mark.parametrize("module", _MODULES)
def test_examples_run(module: str) -> None:
    menu = dict(ANALYSES)
    outcome = doctest.testmod(importlib.import_module(module))
    ANALYSES.clear()  # one example makes a question of its own
    ANALYSES.update(menu)
    assert outcome.attempted > 0 and outcome.failed == 0


def test_completion_shows_the_public_names_alone() -> None:
    assert dir(htk) == sorted(htk.__all__)
    assert all(getattr(htk, name) is not None for name in dir(htk))


def test_run_opens_what_it_is_given() -> None:
    trace = htk.open("sample")
    assert htk.run("sample", "kernel_top", n=3).table.equals(
        htk.run(trace, "kernel_top", n=3).table
    )


def test_a_misspelt_option_is_answered_by_its_neighbour() -> None:
    with pytest.raises(htk.HtkError, match="did you mean 'per'"):
        htk.run("sample", "time_breakdown", perr="step")
