"""The line of the user's own program that launched each GPU activity.

A frame is of the program if neither PyTorch, Triton, Python itself nor an installed package holds
it, nor code that a compiler wrote. A backward operator's line is that of its forward one. The
stack that a kernel itself stems from goes before all: of a graph's node that of its capture, of a
compiler's kernel those of the operators that it is made of. Where no frame is known, the file that
a compiler wrote the kernel into stands for it.
"""

import re
import sys
from functools import partial
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import map_texts, match_texts, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.core.analysis import TablesLater
from htk.base.errors import MissingTable
from htk.quantities.measures.gpu_callers import TextCodes, python_of_kernels

_LINE = re.compile(r"(?P<root>[^/.]*)\S*\.py\(\d+\): ")
_INSTALLED = re.compile(
    r"(site|dist)-packages|lib/python3|torchinductor_|__torch_(function|dispatch)__"
)
_LIBRARIES = {"torch", "triton"} | sys.stdlib_module_names
_BETWEEN = ";"  # of the frames of a stack in one text, innermost first
_MOST_LINES = 3  # of a kernel that is made of many operators
_CALLED_BY = " < "


OperatorLineTables = Annotated[
    TablesLater, ("cpu_ops", "op_links", "op_callers", "python_calls", "python_links")
]


def is_of_program(frame: str) -> bool:
    """Return whether a Python call, as profilers name it, is of the user's own program."""
    line = _LINE.match(frame)
    return line is not None and not _INSTALLED.search(frame) and line["root"] not in _LIBRARIES


def lines_of_kernels(
    kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater, depth: int = 1
) -> TextCodes:
    """Return the innermost line of the program that each activity stems from, and of those that
    called it as many as make `depth`."""
    callers = tables["op_callers"]()
    call = python_of_kernels(kernel_links, tables["launch_callers"](), callers)
    own = TextCodes.from_column(map_texts(kernels["call_stack"], partial(_lines_of_stacks, depth)))
    op = read_numbers(kernel_links["op_row"], NONE)
    return _require_lines(own.or_else(_lines_round(op, call, tables, depth)))


def lines_of_operators(tables: TablesLater) -> TextCodes:
    """Return the innermost line of the program round each operator."""
    call = read_numbers(tables["op_callers"]()["python_row"], NONE)
    return _require_lines(_lines_round(np.arange(len(call)), call, tables))


def _require_lines(lines: TextCodes) -> TextCodes:
    if not (lines.codes != NONE).any():
        raise MissingTable("no line of the program was recorded", "python_calls")
    return lines


def _lines_round(op: Ints, call: Ints, tables: TablesLater, depth: int = 1) -> TextCodes:
    """Return the innermost lines round each operator, or Python call; of backward work round its
    forward operator."""
    cpu_ops = tables["cpu_ops"]()
    python_calls = tables["python_calls"]()
    forward = take_or(read_numbers(tables["op_links"]()["forward_row"], NONE), op)
    of_forward = take_or(read_numbers(tables["op_callers"]()["python_row"], NONE), forward)
    is_own = match_texts(python_calls["name"], is_of_program)
    parent = read_numbers(tables["python_links"]()["parent_row"], NONE)
    own = _find_nearest(of_forward, is_own, parent)
    row = np.where(own != NONE, own, _find_nearest(call, is_own, parent))
    frames = TextCodes.from_column(python_calls["name"])
    lines = TextCodes(take_or(frames.codes, row), frames.texts)
    for _ in range(depth - 1):
        row = _find_nearest(take_or(parent, row), is_own, parent)
        if not (row != NONE).any():
            break
        lines = _called_by(lines, take_or(frames.codes, row), frames.texts)
    stacks = map_texts(cpu_ops["call_stack"], partial(_lines_of_stacks, depth))
    for column in (stacks, cpu_ops["kernel_file"]):
        of_ops = TextCodes.from_column(column)
        lines = lines.or_else(TextCodes(take_or(of_ops.codes, op), of_ops.texts))
    return lines


def _find_nearest(call: Ints, is_wanted: Mask, parent: Ints) -> Ints:
    """Return the nearest wanted call of each one and those round it."""
    rows, row_of_call = np.unique(call, return_inverse=True)
    while len(outer := np.flatnonzero((rows != NONE) & ~take_or(is_wanted, rows, True))):
        rows[outer] = parent[rows[outer]]
    return rows[row_of_call]


def _called_by(lines: TextCodes, callers: Ints, frames: list[str]) -> TextCodes:
    """Return lines with who called them, where that is known."""
    pairs = Groups.by_keys([lines.codes, callers])
    texts = [
        lines.texts[line] + (f"{_CALLED_BY}{frames[caller]}" if caller != NONE else "")
        for line, caller in pairs.keys.tolist()
    ]
    return TextCodes(np.where(lines.codes == NONE, NONE, pairs.group_ids), texts)


def _lines_of_stacks(depth: int, stacks: str) -> str | None:
    """Return the innermost lines of each stack, in order, and how many more than a few there
    are."""
    innermost = (
        [frame for frame in stack.split(_BETWEEN) if is_of_program(frame)][: max(depth, 1)]
        for stack in stacks.split("\n")
    )
    lines = [*dict.fromkeys(_CALLED_BY.join(frames) for frames in innermost if frames)]
    more = [f"{len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return " + ".join(lines[:_MOST_LINES] + more) or None
