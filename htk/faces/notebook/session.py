"""A trace as a notebook holds it: every analysis is a method of it."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

from htk.analyses import ANALYSES, find_analysis
from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.answers.question import own_question
from htk.base.core.humanize import parse_int_ranges
from htk.base.errors import UsageError
from htk.base.schema import doc_of
from htk.base.spread.memory import parse_bytes
from htk.faces.notebook.questions import Questions
from htk.traces.trace.opening import Inputs, OpenOptions, open_trace
from htk.traces.trace.trace import Trace

if TYPE_CHECKING:
    from htk.base.core.analysis import Analysis
    from htk.whatif.api import WhatIf


class Session(Questions, Trace):
    """An open recording: each analysis is a method; `tables` holds the Arrow tables behind them.

    >>> import htk
    >>> trace = htk.open("sample")
    >>> trace.ranks
    [0, 1]
    >>> trace.kernel_top(n=3).shape[0]
    4
    >>> trace.tables["kernels"].num_rows
    1808
    """

    def ask(self, name: str, **options: Any) -> Result:
        """Return the answer of the analysis called `name`, as its method would.

        Args:
            name: an analysis of `htk.catalog()`.
            options: the options of that analysis, e.g. `n=20`.

        >>> import htk
        >>> htk.open("sample").ask("time_breakdown").shape[0]
        2
        """
        return ask_trace(self, name, **options)

    def sql(self, query: str, *, seconds: float = 60.0, memory: str = "4GB") -> Result:
        """Return the rows of a read-only SQL query; tables and analyses are there by name.

        Args:
            query: one statement of DuckDB's SQL. Analyses take options: `kernel_top(n := 3)`.
            seconds: stop the query after this time.
            memory: the most memory the query may take.

        >>> import htk
        >>> htk.open("sample").sql("select count(*) as n from kernels").to_pylist()
        [{'n': 1808}]
        """
        from htk.verdicts.query.sql import run_query
        from htk.verdicts.query.worker import Limits

        return run_query(self, query, Limits(seconds, memory))

    def whatif(self) -> "WhatIf":
        """Return a what-if of this recording: add edits to it, then `run()` it.

        >>> import htk
        >>> answer = htk.open("sample").whatif().batch("2x").run()
        >>> answer.shape[0]
        1
        """
        from htk.whatif.api import start_whatif

        return start_whatif(self)

    def timeline(self) -> Any:
        """Return a notebook widget: all events on a timeline to zoom and search."""
        from htk.faces.notebook.widget import build_timeline_widget
        from htk.traces.timeline.answers import TraceTimeline

        return build_timeline_widget(lambda aligned: TraceTimeline(self, aligned=aligned))

    def report(
        self, path: str | Path = "report.html", *, title: str | None = None, whatif: bool = True
    ) -> Path:
        """Write one document to forward and return its path.

        Args:
            path: where to write; its ending chooses the form: .html, .md, .json or .pdf.
            title: the heading; by default the folder's name.
            whatif: whether to include predictions.

        >>> import htk, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> htk.open("sample").report(f"{folder}/run.md", whatif=False).name
        'run.md'
        """
        from htk.faces.report.content import form_of, gather_report
        from htk.faces.report.write import write_report

        form = form_of(None, str(path))
        name = title or Path(self.files[0].file).parent.name or "recording"
        content = gather_report(self, title=name, command=f'trace.report("{path}")', whatif=whatif)
        write_report(content, form, str(path))
        return Path(path)

    def log_to(
        self, tracker: Any, *, step: int | None = None, report: bool = True
    ) -> dict[str, float]:
        """Log the summary's figures, and the report, to an experiment tracker; return the figures.

        Args:
            tracker: a W&B run (`wandb.init()`), the `mlflow` module, or a TensorBoard
                `SummaryWriter`.
            step: the training step under which they are logged.
            report: whether to add the HTML report (not in TensorBoard, which shows no HTML).

        >>> import htk, types
        >>> tracker = types.SimpleNamespace(log_metrics=lambda values, step: None)
        >>> figures = htk.open("sample").log_to(tracker, report=False)
        >>> sorted(figures)[-2:]
        ['htk/time_pct/idle_launch_latency', 'htk/time_pct/idle_waiting_for_an_event']
        """
        from htk.faces.report.experiment_log import log_to

        return log_to(self, tracker, step=step, report=report)

    def summary(self) -> Result:
        """Return where the time went and what to look at first: times in ns, shares in percent.

        >>> import htk
        >>> set(htk.open("sample").summary()["part"].to_pylist()) >= {"time", "cause"}
        True
        """
        from htk.verdicts.overview.summary import summarise_trace

        return summarise_trace(self)

    def doctor(self) -> Result:
        """Return what was recorded, what is missing for which question, and what is damaged.

        >>> import htk
        >>> "state" in htk.open("sample").doctor().columns
        True
        """
        from htk.verdicts.overview.doctor import check_recording

        return check_recording(self)

    def diff(self, new: Trace, *, by: str = "all", n: int = 20) -> Result:
        """Return what changed from this recording to `new`, significant changes first.

        Args:
            new: the recording to compare with, opened with `htk.open`.
            by: what a row stands for: kernel, family, op, …; all: the usual kinds.
            n: rows to show of each kind (kernels, operators, …); 0: all.

        >>> import htk
        >>> trace = htk.open("sample")
        >>> trace.diff(trace, n=1).shape[0] > 0
        True
        """
        from htk.traces.compare.items import kinds_called
        from htk.verdicts.comparison.differences import list_differences

        return list_differences(self, new, kinds_called(by), n)

    def diff_tree(self, new: Trace, *, n: int = 20) -> Result:
        """Return where the call trees of one step of this recording and of `new` differ.

        Args:
            new: the recording to compare with, opened with `htk.open`.
            n: places to show; 0: all.

        >>> import htk
        >>> trace = htk.open("sample")
        >>> set(trace.diff_tree(trace)["change"].to_pylist())
        {'same kernels'}
        """
        from htk.verdicts.comparison.differences import tree_differences

        return tree_differences(self, new, n)

    def whatif_panel(self) -> Any:
        """Return notebook widgets that predict the step as their controls are moved."""
        from htk.faces.notebook.panel import build_panel

        return build_panel(self)

    def sel(
        self,
        *,
        ranks: int | str | Sequence[int] | None = None,
        steps: int | str | Sequence[int] | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        annotation: str | None = None,
        cycles: int | str | Sequence[int] | None = None,
        name: str | None = None,
        streams: int | str | Sequence[int] | None = None,
        **misspelt: Never,
    ) -> Self:
        """Return the same recording narrowed to a selection; nothing is computed until it is asked.

        Args:
            ranks: a rank, a list of ranks, or text such as "0..3,8".
            steps: steps by their recorded numbers, in the same forms; "first:2" is the first two.
            from_ns: start of a time window, in ns since the recording's first event.
            to_ns: end of that window.
            annotation: a regular expression that names of user ranges are searched for.
            cycles: of several recordings of a rank these, from 0, in the same forms as ranks.
            name: a regular expression that names of GPU activities are searched for.
            streams: streams of GPU activities, in the same forms as ranks.

        >>> import htk
        >>> one = htk.open("sample").sel(ranks=0, steps="10..11")
        >>> one.ranks
        [0]
        """
        for key in misspelt:
            near = difflib.get_close_matches(key, _KEYS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(_KEYS)}"
            raise UsageError(f"sel() has no {key!r}; {hint}")
        return super().sel(
            ranks=_list_numbers(ranks),
            steps=[steps] if isinstance(steps, int) else steps,
            from_ns=from_ns,
            to_ns=to_ns,
            annotation=annotation,
            cycles=_list_numbers(cycles),
            name=name,
            streams=_list_numbers(streams),
        )

    if not TYPE_CHECKING:  # a type checker knows the methods by name, and finds misspelt ones

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in ANALYSES:
                near = difflib.get_close_matches(name, [*ANALYSES, *_PUBLIC], 3)
                hint = f"did you mean {', '.join(near)}?" if near else _LISTED
                raise AttributeError(f"a trace has no {name!r}; {hint}")
            return bind_analysis(self, name)

    def __dir__(self) -> list[str]:
        """Questions first; what is not for users is left out."""
        return [*ANALYSES, *_PUBLIC]

    def __repr__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[:8])) + (", …" if len(self.ranks) > 8 else "")
        kernels = self.tables["kernels"].num_rows
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        return f"<htk trace: {files}, ranks {ranks or 'unknown'}, {kernels:,} GPU activities>"

    def _repr_html_(self) -> str:
        from htk.faces.notebook.session_card import render_session_card

        return render_session_card(self)


def _list_numbers(chosen: int | str | Sequence[int] | None) -> Sequence[int] | None:
    if isinstance(chosen, int):
        return [chosen]
    return parse_int_ranges(chosen) if isinstance(chosen, str) else chosen


_KEYS = ("ranks", "steps", "from_ns", "to_ns", "annotation", "cycles", "name", "streams")
_LISTED = "htk.catalog() lists the questions it answers"
_PUBLIC = (
    "ask",
    "diff",
    "diff_tree",
    "doctor",
    "failed",
    "files",
    "log_to",
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


def bind_analysis(trace: Session, name: str) -> Callable[..., Result]:
    """Return an analysis as a function of its options; `help` of it tells these and its columns."""
    analysis = find_analysis(name)

    def answer_question(**options: Any) -> Result:
        return trace.ask(name, **options)

    every = inspect.signature(analysis.function).parameters.values()
    options = [p for p in every if p.name in analysis.options]
    answer_question.__name__ = answer_question.__qualname__ = name
    answer_question.__doc__ = f"{analysis.doc}\n\n{_describe_analysis(analysis)}"
    answer_question.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=analysis.options[p.name].type) for p in options],
        return_annotation=Result,
    )
    return answer_question


def _describe_analysis(analysis: "Analysis[...]") -> str:
    """Return what the options and the columns of an analysis mean."""
    lines = ["Options:"] if analysis.options else []
    lines += [f"    {o.name}: {o.doc} ({o.default!r})" for o in analysis.options.values()]
    lines += ["Columns:"] if len(analysis.returns) else []
    lines += [f"    {column.name}: {doc_of(column)}" for column in analysis.returns]
    return "\n".join(lines)


def open(
    inputs: Inputs,
    *,
    cache: bool = True,
    strict: bool = False,
    rank: int | None = None,
    rank_pattern: str | None = None,
    job: str | None = None,
    keep_unknown_arguments: bool = False,
    keep_overruns: bool = False,
    cache_by_content: bool = False,
    time_unit: str | None = None,
    on: str | None = None,
    memory: str | None = None,
) -> Session:
    """Open a recording and return it as a `Session`.

    Args:
        inputs: a file, a folder, a glob, an archive, a URL, a list of these, or "sample".
        cache: keep the parsed tables on disk, and use those kept before.
        strict: fail where a file is damaged, unread or incomplete, instead of counting it.
        rank: the rank of a single file that does not say it.
        rank_pattern: a regular expression whose group finds the rank in each file's name.
        job: which of several jobs whose files lie together, by its name.
        keep_unknown_arguments: keep event arguments that no table has a column for.
        keep_overruns: keep GPU activities that last over those that follow on their stream; else
            they are cut.
        cache_by_content: name cache entries by a hash of the bytes, not by size and time.
        time_unit: unit of operation-level rows that do not say it: "s", "ms", "us" or "ns".
        on: who reads files and answers rank by rank: "threads", "processes" or "ray".
        memory: memory for answers made rank by rank, e.g. "4GB"; else half of what is free.

    >>> import htk
    >>> htk.open("sample")
    <htk trace: 2 files, ranks 0, 1, 1,808 GPU activities>
    """
    memory_bytes = None if memory is None else parse_bytes(memory)
    options = OpenOptions(
        cache,
        strict,
        rank,
        rank_pattern,
        job,
        keep_unknown_arguments,
        keep_overruns,
        cache_by_content,
        time_unit,
        on=on,
        memory_bytes=memory_bytes,
    )
    trace = open_trace(inputs, options)
    return Session(
        trace.files,
        trace.selection,
        trace.unread,
        trace.failed,
        joined=trace.joined,
        work=trace.work,
    )


def run(trace: Trace | Inputs, name: str | Callable[..., Any], **options: Any) -> Result:
    """Return the answer of one analysis about an open recording, or about files that it opens.

    Args:
        trace: a recording from `htk.open`, or whatever `htk.open` takes.
        name: an analysis of `htk.catalog()`, or a function as `htk.question` takes it.
        options: the options of that analysis, e.g. `n=20`.

    >>> import htk
    >>> htk.run("sample", "kernel_top", n=5).shape[0]
    6
    """
    asked = name if isinstance(name, str) else own_question(name)
    return ask_trace(trace if isinstance(trace, Trace) else open_trace(trace), asked, **options)
