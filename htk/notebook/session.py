"""A trace as a notebook holds it: every analysis is a method of it."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from htk.analyses import ANALYSES, find
from htk.answers.ask import ask
from htk.core.humanize import parse_int_ranges
from htk.notebook.questions import Questions
from htk.output.result import Result
from htk.trace.opening import Inputs, OpenOptions, open_trace
from htk.trace.trace import Trace

if TYPE_CHECKING:
    from htk.whatif.api import WhatIf


class Session(Questions, Trace):
    """An open trace. `trace.kernel_top(n=20)` asks a question; `trace.sel(steps=[3])` narrows it.

    `trace.tables["kernels"]` are the Arrow tables behind the answers.
    """

    def ask(self, name: str, **options: Any) -> Result:
        """Ask a question by its name."""
        return ask(self, name, **options)

    def sql(self, query: str, *, seconds: float = 60.0, memory: str = "4GB") -> Result:
        """The answer to an SQL query over tables and analyses, by name: one reading statement."""
        from htk.query.sql import query as answer
        from htk.query.worker import Limits

        return answer(self, query, Limits(seconds, memory))

    def whatif(self) -> "WhatIf":
        """What would a step take if: `trace.whatif().batch(64).run()`."""
        from htk.whatif.api import WhatIf

        return WhatIf(self)

    def timeline(self) -> Any:
        """All that ran, on a timeline to zoom and search: a widget of a notebook."""
        from htk.notebook.widget import timeline
        from htk.timeline.answers import TraceTimeline

        return timeline(lambda aligned: TraceTimeline(self, aligned=aligned))

    def report(
        self, path: str | Path = "report.html", *, title: str = "", whatif: bool = True
    ) -> Path:
        """Write one file that tells it all, in the form of its ending: html, md, json, pdf."""
        from htk.report.content import form_of, gathered
        from htk.report.write import write

        form = form_of(None, str(path))
        name = title or Path(self.files[0].file).parent.name or "recording"
        content = gathered(self, title=name, command=f'trace.report("{path}")', whatif=whatif)
        write(content, form, str(path))
        return Path(path)

    def summary(self) -> Result:
        """Where did the time go, and what should be looked at first?"""
        from htk.overview.summary import result, verdict

        return result(verdict(self))

    def doctor(self) -> Result:
        """What was recorded, what is missing for which question, and what is damaged?"""
        from htk.overview.doctor import doctor
        from htk.trace.coverage import coverage

        return Result(doctor.label, doctor(self), coverage(self, ()))

    def diff(self, new: Trace, *, n: int = 10) -> Result:
        """What changed from this recording to another? `n` rows of each kind, 0: all."""
        from htk.compare.runs import DIFF, EACH, compare
        from htk.core.analysis import coverage_of

        table = compare(self.tables, new.tables, EACH, n)
        return Result(DIFF, table, coverage_of(table))

    def whatif_panel(self) -> Any:
        """What-ifs to try by hand: widgets that predict the step as they are changed."""
        from htk.notebook.panel import panel

        return panel(self)

    def sel(
        self,
        *,
        ranks: int | str | Sequence[int] | None = None,
        steps: int | str | Sequence[int] | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        annotation: str | None = None,
    ) -> Self:
        """The same trace, narrowed: `trace.sel(ranks="0..3", steps=[3, 4], annotation="forward")`.

        Nothing is computed until something is asked. Times are ns since the trace began.
        """
        return super().sel(
            ranks=_listed(ranks),
            steps=_listed(steps),
            from_ns=from_ns,
            to_ns=to_ns,
            annotation=annotation,
        )

    if not TYPE_CHECKING:  # a type checker knows the methods by name, and finds misspelt ones

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in ANALYSES:
                raise AttributeError(
                    f"a trace has no {name!r}; htk.catalog() lists the questions it answers"
                )
            return BoundAnalysis(self, name)

    def __dir__(self) -> list[str]:
        """Questions first; what is not for users is left out."""
        return [*ANALYSES, *_PUBLIC]

    def __repr__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[:8])) + (", …" if len(self.ranks) > 8 else "")
        kernels = self.tables["kernels"].num_rows
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"<htk trace: {files}, ranks {ranks or 'unknown'}, {kernels:,} GPU activities>"

    def _repr_html_(self) -> str:
        from htk.notebook.session_card import card

        return card(self)


def _listed(chosen: int | str | Sequence[int] | None) -> Sequence[int] | None:
    if isinstance(chosen, int):
        return [chosen]
    return parse_int_ranges(chosen) if isinstance(chosen, str) else chosen


_PUBLIC = (
    "ask",
    "diff",
    "doctor",
    "failed",
    "files",
    "ranks",
    "report",
    "sel",
    "selection",
    "sql",
    "summary",
    "tables",
    "timeline",
    "unread",
    "whatif",
    "whatif_panel",
)


class BoundAnalysis:
    """An analysis bound to a trace: called, it answers; its signature is the analysis's own."""

    def __init__(self, trace: Session, name: str) -> None:
        analysis = find(name)
        self._trace, self.__name__ = trace, name
        self.__doc__ = analysis.doc
        every = inspect.signature(analysis.function).parameters.values()
        options = [p for p in every if p.kind is p.KEYWORD_ONLY]
        self.__signature__ = inspect.Signature(options, return_annotation=Result)

    def __call__(self, **options: Any) -> Result:
        return self._trace.ask(self.__name__, **options)


def open(
    inputs: Inputs,
    *,
    cache: bool = True,
    strict: bool = False,
    rank: int | None = None,
    rank_pattern: str | None = None,
    keep_unknown_arguments: bool = False,
    cache_by_content: bool = False,
    time_unit: str | None = None,
) -> Session:
    """Open a trace: a file, a folder, a glob, several, an archive, a URL, or 'sample'."""
    options = OpenOptions(
        cache, strict, rank, rank_pattern, keep_unknown_arguments, cache_by_content, time_unit
    )
    trace = open_trace(inputs, options)
    return Session(trace.files, trace.selection, trace.unread, trace.failed)
