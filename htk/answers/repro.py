"""A script of one recorded call: it runs the operator again, alone, with the same inputs.

What the recording says is text of a stranger: it goes into the script as literals of known types,
and the name only if it is one.
"""

import ast
import math
import os
import re
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from htk.answers.ask import ask_trace
from htk.answers.option_values import nearest_word
from htk.base.columns.arrow import codes_of, read_booleans, read_lengths
from htk.base.core.humanize import format_duration, shorten_text
from htk.base.errors import HtkError, MissingTable, UsageError
from htk.base.mappings import Facts
from htk.quantities.measures.call_tree import CallTree, DeviceTimes
from htk.traces.trace.trace import Trace

_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?", re.ASCII)
_KERNEL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = {
    **{"float": "float32", "double": "float64", "c10::Half": "float16", "int": "int32"},
    **{"c10::BFloat16": "bfloat16", "long int": "int64", "long": "int64", "short": "int16"},
    **{"short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool"},
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
}
_LISTS = ("TensorList", "OptionalTensorList", "GenericList")
_MOST_DIMENSIONS, _MOST_SIZE, _MOST_INPUTS = 64, 2**48, 10_000


def script_of(trace: Trace, op: str, nth: str = "slowest") -> str:
    """Return a Python script that runs one recorded call of an operator, or of a compiled kernel,
    and prints its time beside the recorded one, the roofline's and the best that was measured."""
    ops = trace.need("cpu_ops")
    links = trace.tables["op_links"]
    codes, names = codes_of(ops["name"])
    is_named = np.array([name == op for name in names.to_pylist()] + [False], bool)[codes]
    rows = np.flatnonzero(is_named & read_booleans(links["selected"]))
    if not len(rows):
        raise UsageError(
            f"no operator is called {shorten_text(op, 80)!r}; {_suggest_similar(op, names)}"
        )
    tree = CallTree.from_calls(ops, links)
    times = DeviceTimes.from_kernels(
        ops.num_rows, trace.tables["kernels"], trace.tables["kernel_links"], links
    )
    took = tree.subtree(times.own)[rows]
    on_gpu = bool(took.any())
    if on_gpu:
        rows = rows[took > 0]
        took = took[took > 0]
    else:
        took = read_lengths(ops)[rows]
    order = np.argsort(-took, kind="stable")
    chosen = int(order[_place_of(nth, len(rows))])
    call: Facts = ops.slice(int(rows[chosen]), 1).to_pylist()[0]
    kernel_file = _file_of(call)
    where = f"rank {call['rank']}, {'of' if on_gpu else 'on the host, of'} {len(rows):,} calls"
    beside = [("recorded", int(took[chosen]) / 1e3, f"{nth}: {where}"), *_find_limits(trace, call)]
    try:
        inputs = _list_inputs(call)
    except MissingTable as error:
        raise trace.with_recipe(error) from None
    head = [
        f"# {op}, as it was recorded ({format_duration(int(took[chosen]))}, {where}).",
        "# Values are random; element types of lists of tensors are not recorded.",
        *(["# This runs the file below: look at it first."] if kernel_file else []),
        f"NAME = {op!a}",
        f"KERNEL_FILE = {kernel_file!a}",
        f"LEAST = {_least_size(inputs)}",
        "INPUTS = [",
        *(f"    {value!a}," for value in inputs),
        "]",
        "BESIDE = [",
        *(f"    {line!a}," for line in beside),
        "]",
        "",
    ]
    body = files("htk.answers").joinpath("repro_script.txt").read_text(encoding="utf-8")
    return "\n".join(head) + body


def _suggest_similar(op: str, names: pa.Array) -> str:
    near = nearest_word(op, names.to_pylist())
    return f"did you mean {near!r}?" if near else "htk op-breakdown lists them"


def _place_of(nth: str, calls: int) -> int:
    """Return the place of a call among all, the slowest first."""
    words = {"slowest": 0, "median": calls // 2, "fastest": calls - 1}
    if nth in words:
        return words[nth]
    if nth.isascii() and nth.isdigit() and 0 < len(nth) < 10 and 0 < int(nth) <= calls:
        return int(nth) - 1
    raise UsageError(
        f"--nth {shorten_text(nth, 40)}: slowest, median, fastest, or a number from 1 to "
        f"{calls:,}, the slowest first"
    )


def _file_of(call: Facts) -> str | None:
    """Return the file of a compiled kernel; None of an operator. What is neither is refused."""
    name = str(call["name"])
    if _OPERATOR.fullmatch(name):
        return None
    path = call["kernel_file"]
    if not path or not _KERNEL.fullmatch(name):
        raise UsageError(
            f"{shorten_text(name, 80)} is no operator that PyTorch can call by its name, nor a "
            "compiled "
            "kernel; choose an operator that it calls, e.g. aten::mm (htk op-tree shows them)"
        )
    if not (os.path.isabs(path) and path.endswith(".py") and os.path.isfile(path)):
        raise UsageError(
            f"{name}: its source {shorten_text(str(path), 120)} is not here; copy it there from "
            "the machine that recorded it"
        )
    return str(path)


def _find_limits(trace: Trace, call: Facts) -> list[tuple[str, float, str]]:
    """Return what the roofline and the best measured kernel would take, in us."""
    same = {"name": call["name"], "shapes": call["input_dims"], "types": call["input_types"]}
    lines = []
    for question, column, what, note in (
        ("roofline", "roofline_ns", "roofline", "at the recorded GPU's peaks"),
        ("kernel_gap", "best_ns", "best measured", "of the fastest library at that size"),
    ):
        try:
            rows = ask_trace(trace, question, n=0).to_pylist()
        except HtkError:  # nothing of the GPU is known
            continue
        row = next((r for r in rows if all(r[k] == v for k, v in same.items())), None)
        if row is None or row[column] is None:
            continue
        calls = row["count"] if column == "best_ns" else 1
        lines.append((what, float(row[column]) / max(calls, 1) / 1e3, note))
    return lines


def _list_inputs(call: Facts) -> list[tuple[Any, ...]]:
    """Return the inputs as literals: tensors by shape, strides and type; values as they were."""
    shapes = _parse_list(call["input_dims"])
    types = _parse_list(call["input_types"])
    if not types or len(shapes) != len(types):
        raise MissingTable(
            f"{shorten_text(str(call['name']), 80)}: the shapes of its inputs were not recorded",
            "shapes",
        )
    if len(types) > _MOST_INPUTS:
        raise UsageError(
            f"{shorten_text(str(call['name']), 80)}: {len(types):,} inputs are too many"
        )
    strides = _parse_list(call["input_strides"])
    values = _parse_list(call["concrete_inputs"])
    strides += [None] * (len(types) - len(strides))
    values += [""] * (len(types) - len(values))
    of_lists = next((_TYPES[t] for t in types if t in _TYPES), "float32")
    inputs: list[tuple[Any, ...]] = []
    for kind, shape, steps, value in zip(types, shapes, strides, values, strict=False):
        if kind in _TYPES:
            inputs.append(("tensor", *_check_tensor(shape, steps), _TYPES[kind]))
        elif kind in _LISTS and isinstance(shape, list):
            own = (
                steps
                if isinstance(steps, list) and len(steps) == len(shape)
                else [None] * len(shape)
            )
            pairs = [_check_tensor(*pair) for pair in zip(shape, own, strict=True)]
            # Counters of steps are single numbers, in single precision.
            inputs.append(
                ("tensors", [(*pair, of_lists if pair[0] else "float32") for pair in pairs])
            )
        elif shape:
            raise UsageError(f"tensors of type {shorten_text(str(kind), 40)!r} are not known")
        else:
            inputs.append(("value", _parse_value(value)))
    return inputs


def _parse_list(text: str | None) -> list[Any]:
    try:
        values = msgspec.json.decode(text or "[]")
    except msgspec.DecodeError:
        return []
    return values if isinstance(values, list) else []


def _check_tensor(shape: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return a shape and strides, of bounded whole numbers."""
    for sizes in (shape, strides):
        if sizes is None:
            continue
        is_sizes = isinstance(sizes, list) and len(sizes) <= _MOST_DIMENSIONS
        if not is_sizes or not all(type(s) is int and 0 <= s <= _MOST_SIZE for s in sizes):
            raise UsageError(
                f"{shorten_text(str(sizes), 60)} is no shape and no stride of a tensor"
            )
    return tuple(shape or ()), None if strides is None else tuple(strides)


def _parse_value(text: Any) -> Any:
    """Return the value of an input that is no tensor: numbers, truths, lists of such; else None."""
    try:
        literal = ast.literal_eval(text) if isinstance(text, str) and len(text) < 10_000 else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    each = literal if isinstance(literal, list) else [literal]
    is_plain = all(isinstance(value, bool | int | float) for value in each)
    is_finite = all(not isinstance(v, float) or math.isfinite(v) for v in each)
    return literal if is_plain and is_finite else None


def _least_size(inputs: list[tuple[Any, ...]]) -> int:
    """Return a bound of whole numbers that are a place in every dimension of what they point to:
    the least size of a tensor of fractions, else of any."""
    tensors = [value[1:] for value in inputs if value[0] == "tensor"]
    tensors += [each for value in inputs if value[0] == "tensors" for each in value[1]]
    of_fractions = [t for t in tensors if not t[2].startswith(("int", "uint", "bool"))]
    sizes = (size for shape, *_ in of_fractions or tensors for size in shape if size > 0)
    return min(sizes, default=1)
