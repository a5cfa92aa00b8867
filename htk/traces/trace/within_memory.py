"""Functions of a trace that hold what they make to its memory."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from htk.traces.trace.trace import Trace

Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")


def within_memory(
    function: Callable[Concatenate[Trace, Rest], Answer],
) -> Callable[Concatenate[Trace, Rest], Answer]:
    """Return the function, held to the memory of the trace that it is given."""

    @wraps(function)
    def call_bounded(trace: Trace, /, *arguments: Rest.args, **options: Rest.kwargs) -> Answer:
        with trace.bounded():
            return function(trace, *arguments, **options)

    return call_bounded
