"""Answer one question about a trace, with the coverage the answer rests on."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from htk.analyses import ANALYSES, find_analysis
from htk.answers.in_parts import in_parts
from htk.answers.kept import kept_answer
from htk.answers.option_values import checked_options
from htk.answers.output.result import Result
from htk.answers.table import TablesOf, table_of_answer, tables_read
from htk.base.core.analysis import Analysis, coverage_of
from htk.base.errors import MissingTable
from htk.base.mappings import Facts
from htk.base.spread.workplace import Errand, announce_errand
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.selection import is_by_activity
from htk.traces.trace.trace import Trace


def catalog() -> dict[str, str]:
    """Return the question that each analysis answers, by the name of the analysis.

    >>> import htk
    >>> htk.catalog()["kernel_top"]
    'Which kernels cost most GPU time?'
    """
    return {name: entry.question for name, entry in ANALYSES.items()}


def ask_trace(trace: Trace, name: str | Analysis[...], **options: Any) -> Result:
    """Return the answer of an analysis, by its name too: `ask(trace, "kernel_top", n=20)`."""
    chosen = find_analysis(name) if isinstance(name, str) else name
    options = checked_options(chosen, options)
    if chosen.is_of_activities and is_by_activity(trace.selection, trace.selected_files):
        trace = replace(trace, names_activities=True)  # a choice leaves the host whole
    trace.check_selection()
    if options.get("per") == "step" and not trace.has_steps:
        raise trace.with_recipe(MissingTable("no steps were recorded", "step_windows"))
    gpu: Facts | None = None

    def answer_question() -> pa.Table:
        nonlocal gpu
        parted = in_parts(trace, chosen, options)
        if parted is not None:
            gpu = parted.gpu
            return parted.table
        with trace.bounded(), announce_errand(Errand(trace.work, TablesOf(trace))):
            return table_of_answer(trace, chosen, options)

    table = kept_answer(trace, chosen, options, answer_question)
    with trace.bounded():
        facts = describe_coverage(trace, tables_read(chosen), gpu) | dict(coverage_of(table))
    return Result(chosen.label, table, facts)
