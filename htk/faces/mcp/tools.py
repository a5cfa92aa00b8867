"""The tools: one for each analysis, and those of the commands that only read."""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from htk.analyses import load_analyses
from htk.answers.ask import ask_trace
from htk.base.core.analysis import Analysis, Option
from htk.base.mappings import Fields
from htk.faces.mcp.answers import bound_answer
from htk.faces.mcp.plans import plan_server, plan_training
from htk.faces.mcp.traces import Traces
from htk.planning.serving.steady import Load
from htk.verdicts.comparison.differences import list_differences

Tool = Callable[..., str]
_MOST_FILES = 500
LIMIT = 50  # rows: an agent reads every one
Recording = Annotated[str, "A file or folder below the roots, or 'sample'."]
Limit = Annotated[int, "Most rows to return."]
Offset = Annotated[int, "Rows to skip: next_offset of the answer before."]
Ranks = Annotated[str | None, "Only these ranks, e.g. 0,2..5."]
Steps = Annotated[str | None, "Only these profiler steps, e.g. 3..4 or first:2."]
Cycles = Annotated[
    str | None, "Only these recordings of a rank that has several, counted from 0, e.g. 1."
]

Job = Annotated[str | None, "Which of several jobs whose files lie together, by its name."]
_CHOOSING: Fields = {"ranks": Ranks, "steps": Steps, "cycles": Cycles, "job": Job}


def list_tools(traces: Traces) -> Iterator[tuple[str, str, Tool]]:
    """Yield name, description and function of each tool."""
    for tool in _list_command_tools(traces):
        yield tool.__name__, inspect.getdoc(tool) or "", tool
    for name, analysis in load_analyses():
        yield name, analysis.question, _of_analysis(name, analysis, traces)


def _of_analysis(name: str, analysis: Analysis[...], traces: Traces) -> Tool:
    """Return the tool of an analysis; its parameters are the analysis's options."""

    def tool(**arguments: Any) -> str:
        options = {k: v for k, v in arguments.items() if k in analysis.options and v is not None}
        chosen = {name: arguments.get(name) for name in _CHOOSING}
        trace = traces.select(arguments["path"], **chosen)
        return bound_answer(
            ask_trace(trace, name, **options),
            arguments.get("limit", LIMIT),
            arguments.get("offset", 0),
        )

    common: dict[str, tuple[Any, Any]] = {
        "path": (Recording, inspect.Parameter.empty),
        **{name: (kind, None) for name, kind in _CHOOSING.items()},
        "limit": (Limit, LIMIT),
        "offset": (Offset, 0),
    }
    parameters = [_build_parameter(n, kind, default) for n, (kind, default) in common.items()]
    parameters += [_of_option(o) for o in analysis.options.values() if o.name not in common]
    tool.__name__ = name
    tool.__doc__ = analysis.doc
    tool.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    tool.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": str}
    return tool


def _build_parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=kind)


def _of_option(option: Option) -> inspect.Parameter:
    return _build_parameter(option.name, Annotated[option.type, option.doc], option.default)


def _list_command_tools(traces: Traces) -> list[Tool]:
    """Return the tools of commands, by reading alone."""

    def list_files() -> str:
        """Which files can be opened? Paths below the roots."""
        return "\n".join(traces.listed(_MOST_FILES)) or "no file below the roots; 'sample' opens"

    def doctor(path: Recording, job: Job = None) -> str:
        """What was recorded, what is missing for which question, and what is damaged?"""
        from htk.verdicts.overview import doctor as overview

        return bound_answer(overview.check_recording(traces.select(path, job=job)), 200)

    def summary(
        path: Recording,
        ranks: Ranks = None,
        steps: Steps = None,
        cycles: Cycles = None,
        job: Job = None,
    ) -> str:
        """Where did the time go, and what should be looked at first?"""
        from htk.verdicts.overview import summary as overview

        return bound_answer(
            overview.summarise_trace(traces.select(path, ranks, steps, cycles, job)), 100
        )

    def sql(
        path: Recording, query: str, job: Job = None, limit: Limit = LIMIT, offset: Offset = 0
    ) -> str:
        """What does an SQL query answer? Tables and analyses by name; one reading statement."""
        from htk.verdicts.query.sql import run_query
        from htk.verdicts.query.worker import Limits

        answered = run_query(traces.select(path, job=job), query, Limits(30.0, "2GB"))
        return bound_answer(answered, limit, offset)

    def diff(
        base: Recording,
        new: Recording,
        n: Annotated[int, "Rows to show of each kind; 0: all."] = 20,
        job: Job = None,
        new_job: Annotated[str | None, "The same of `new`; without it, `job` too."] = None,
    ) -> str:
        """What changed between two recordings, beyond noise?"""
        before = traces.select(base, job=job)
        after = traces.select(new, job=new_job or job)
        return bound_answer(list_differences(before, after, n=n), 200)

    def whatif(
        path: Recording,
        edits: Annotated[
            dict[str, str] | None, "Edits by name, e.g. {'batch': '2x'}; none: best-case savings."
        ] = None,
        job: Job = None,
    ) -> str:
        """What would a step take if this were changed? With 50 % and 90 % prediction intervals."""
        from htk.whatif.api import WhatIf

        asked = WhatIf(traces.select(path, job=job))
        for name, value in (edits or {}).items():
            asked = asked.change(name, value)
        return bound_answer(asked.run(), 50)

    def plan(
        model: Annotated[str, "Model: llama2-7b, gpt3-175b, …"],
        gpu: Annotated[str, "GPU of the hardware catalogue, e.g. a100-80gb."],
        cluster: Annotated[
            dict[str, int | float | str | bool] | None,
            "nodes, gpus_per_node, micro_batch, seq, accumulation, tensor_parallel, precision, …",
        ] = None,
    ) -> str:
        """What would training this model on this cluster take: time, memory? Without a trace."""
        return plan_training(model, gpu, cluster or {})

    def plan_serving(
        model: Annotated[str, "Model: llama3-70b, qwen3-32b, …"],
        gpu: Annotated[str, "GPU of the hardware catalogue, e.g. h100."],
        prompt: Annotated[int, "Tokens of each request's prompt."] = 1024,
        generated: Annotated[int, "Tokens that each request is answered with."] = 256,
        requests: Annotated[
            list[int] | None, "Requests at once, e.g. [1, 16]; by default up to what fits."
        ] = None,
        server: Annotated[
            dict[str, int | float | str] | None,
            "tensor_parallel, weights, kv_cache (bf16, fp8, …), chunk, price of a GPU-hour, …",
        ] = None,
    ) -> str:
        """What would a server of this model reach: latency, throughput, memory, cost? Without a
        trace."""
        return plan_server(model, gpu, Load(prompt, generated), requests or [], server or {})

    return [list_files, doctor, summary, sql, diff, whatif, plan, plan_serving]
