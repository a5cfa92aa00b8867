"""Exceptions, each with its exit code.

HtkError                     exit 1
├── UsageError               exit 2   the request is invalid
│   └── UnknownAnalysis               there is no analysis of that name
├── TraceError               exit 3   the input cannot be used
│   ├── UnknownFormat                 no parser recognises the file
│   ├── MalformedTrace                a parser recognised the file, then could not read it
│   └── UnknownRank                   several files, and nothing says which rank is whose
├── GateFailed               exit 4   a regression gate tripped (htk diff --fail-on; a check of
│                                     htk verify that fails exits so too)
├── MissingPackage           exit 5   an optional package is not installed (says which extra)
└── AnalysisError            exit 1   the question cannot be answered
    ├── MissingTable         exit 3   the trace holds no such data (says what would record it)
    └── SchemaMismatch                our bug: a function broke its declared schema

A message says what was seen, what was expected and what to do next, on one line.
"""


class HtkError(Exception):
    """Every error htk raises on purpose."""

    exit_code = 1


class UsageError(HtkError):
    """The request is invalid: an option, a name or a path."""

    exit_code = 2


class UnknownAnalysis(UsageError):
    """There is no analysis of that name."""


class TraceError(HtkError):
    """The input cannot be used."""

    exit_code = 3


class UnknownFormat(TraceError):
    """No parser recognises the file."""


class MalformedTrace(TraceError):
    """A parser recognised the file, then could not read it."""


class UnknownRank(TraceError):
    """Several files, and nothing says which rank is whose."""


class GateFailed(HtkError):
    """A regression gate tripped."""

    exit_code = 4


class MissingPackage(HtkError):
    """A package that only this command needs is not installed."""

    exit_code = 5


class AnalysisError(HtkError):
    """The question cannot be answered."""


class MissingTable(AnalysisError):
    """The trace holds no such data.

    `lacks` names the table that would hold it; how to record that depends on the recording's
    format, and is added (`recipe`) where this is known.
    """

    exit_code = 3

    def __init__(self, message: str, lacks: str = "", recipe: str = "") -> None:
        super().__init__(message, lacks, recipe)
        self.lacks = lacks
        self.recipe = recipe

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.args[0], self.recipe)))


class SchemaMismatch(AnalysisError):
    """An analysis returned other columns than it declared."""
