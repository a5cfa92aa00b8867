"""Python stacks as the vocabulary holds them: `file.py(12): function;…`, innermost first.

A kernel that a compiler made of several operators has a stack of each: a line each.
"""

import re
from collections.abc import Iterable

import msgspec

_BETWEEN = ";"  # of frames
_TRACEBACK = re.compile(r'File "([^"\n]{1,4096})", line (\d{1,9}), in ([^\n]{1,1024})')
_GRAPH = re.compile(r"([^\n]{1,4096}):(\d{1,9}):([^\n:]{1,1024})")
_MOST_STACKS = 64  # of one kernel


def join_stacks(listed: str) -> str | None:
    """Return the stacks of a kernel, of which the profiler holds a list as JSON."""
    try:
        stacks = msgspec.json.decode(listed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        stacks = [listed]
    return join_tracebacks(stacks if isinstance(stacks, list) else [stacks])


def join_tracebacks(stacks: Iterable[object]) -> str | None:
    """Return stacks that are written as Python's traceback prints them."""
    joined = (
        _of_frames(_TRACEBACK.findall(text)[::-1]) for text in stacks if isinstance(text, str)
    )
    return "\n".join(list(dict.fromkeys(filter(None, joined)))[:_MOST_STACKS]) or None


def read_graph_stack(text: str) -> str | None:
    """Return a stack that is written as torch.cuda.graph_annotations does."""
    return _of_frames(_GRAPH.findall(text)) or None


def _of_frames(frames: Iterable[tuple[str, str, str]]) -> str:
    return _BETWEEN.join(f"{file}({line}): {function}" for file, line, function in frames)
