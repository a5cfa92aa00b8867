"""What rows of GPU activities stand for: kernels, operators, modules, lines of the program, …"""

from collections.abc import Callable
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Mask, take_or
from htk.base.core.analysis import TablesLater
from htk.base.errors import MissingTable
from htk.base.names.rows_by import By
from htk.quantities.derived.captures import links_of_captures
from htk.quantities.measures.gpu_callers import TextCodes, modules_of_kernels
from htk.quantities.measures.program_lines import lines_of_kernels

SourceDepth = Annotated[int, "Lines of the program in a row by source: the innermost and callers."]

NAMING = ("kernels", "kernel_links", "cpu_ops", "op_links", "op_callers", "launches",
          "launch_links", "launch_callers", "python_calls", "python_links",
          "kernel_passes")  # fmt: skip
NamingTables = Annotated[TablesLater, NAMING]

_OF_ACTIVITIES = ("kernel", "family", "stream")  # known without a launch
_NOTHING = {
    "kernel": "[no name]",
    "op": "[no operator]",
    "shape": "[no operator]",
    "module": "[no module]",
    "source": "[no line of the program]",
}


def tell_apart(by: By, tables: TablesLater, source_depth: int = 1) -> tuple[TextCodes, Mask]:
    """Return what each activity's row stands for, in brackets where nothing tells it, and which
    activities something tells; kernels of a replayed graph have what their capture has."""
    kernels = tables["kernels"]()
    kernel_links = tables["kernel_links"]()
    if by not in _OF_ACTIVITIES:
        kernel_links = links_of_captures(kernels, kernel_links, tables)
    if by in ("kernel", "family"):
        of_row = TextCodes.from_column(kernels["name" if by == "kernel" else by])
    elif by == "stream":
        of_row = _code_streams(kernels)
    elif by == "source":
        of_row = lines_of_kernels(kernels, kernel_links, tables, source_depth)
    else:
        of_row = _BY_LAUNCH[by](kernels, kernel_links, tables)
    says_something = np.array([*map(bool, of_row.texts), False], bool)
    is_told = says_something[of_row.codes]
    is_lost = (read_numbers(kernel_links["launch_row"], NONE) == NONE) & (by not in _OF_ACTIVITIES)
    codes = np.where(is_told, of_row.codes, len(of_row.texts) + is_lost)
    texts = [*of_row.texts, _NOTHING.get(by, "[other]"), "[launch not recorded]"]
    code_of_text = {text: code for code, text in enumerate(texts)}  # some come from two columns
    once = np.array([code_of_text[text] for text in texts], np.int64)
    return TextCodes(once[codes], texts), is_told


def _code_streams(kernels: pa.Table) -> TextCodes:
    streams = Groups.by_keys([read_numbers(kernels[name], NONE) for name in ("device", "stream")])
    texts = [f"device {device} stream {stream}" for device, stream in streams.keys.tolist()]
    return TextCodes(streams.group_ids, texts)


def _code_operators(kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater) -> TextCodes:
    operators = TextCodes.from_column(tables["cpu_ops"]()["name"])
    op = read_numbers(kernel_links["op_row"], NONE)
    return TextCodes(take_or(operators.codes, op), operators.texts)


def _code_shapes(kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater) -> TextCodes:
    """Return the operator of each activity with the shapes of its inputs."""
    cpu_ops = tables["cpu_ops"]()
    operators = TextCodes.from_column(cpu_ops["name"])
    shapes = TextCodes.from_column(cpu_ops["input_dims"])
    op = read_numbers(kernel_links["op_row"], NONE)
    pairs = Groups.by_keys([take_or(column.codes, op) for column in (operators, shapes)])
    texts = [
        f"{operators.texts[name]} {shapes.texts[dims] if dims != NONE else ''}".rstrip()
        for name, dims in pairs.keys.tolist()
        if name != NONE
    ]
    nobody = len(pairs) - len(texts)  # sorted first
    return TextCodes(np.maximum(pairs.group_ids - nobody, NONE), texts)


def _code_modules(kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater) -> TextCodes:
    callers = (tables[name]() for name in ("launch_callers", "op_callers"))
    modules = modules_of_kernels(kernels, kernel_links, *callers)
    if not any(modules.used):
        raise MissingTable("no operator has an nn.Module", "modules")
    return modules


def _code_phases(kernels: pa.Table, kernel_links: pa.Table, tables: TablesLater) -> TextCodes:
    return TextCodes.from_column(tables["kernel_passes"]()["phase"])


_BY_LAUNCH: dict[str, Callable[[pa.Table, pa.Table, TablesLater], TextCodes]] = {
    "op": _code_operators,
    "shape": _code_shapes,
    "module": _code_modules,
    "phase": _code_phases,
}
