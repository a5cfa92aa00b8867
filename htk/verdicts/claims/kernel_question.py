"""How long kernels take that somebody describes: one by options, or many as rows of a file."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.columns.types import Floats
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.mappings import Facts
from htk.base.schema import INT64, STRING, TEXT, table
from htk.physics.hardware import Gpu, gpu
from htk.physics.kernel_laws import FORMATS
from htk.physics.kernel_time import estimate_grouped, estimate_kernels, most_ranks

RETURNS = table(
    expected_ns=(INT64, "Typical time: of the median library that was measured."),
    lo90_ns=(INT64, "Nine of ten such kernels take more than this …"),
    hi90_ns=(INT64, "… and less than this."),
    best_ns=(INT64, "Time of the fastest library that was measured."),
    basis=(TEXT, "What the times rest on; where there are none, why."),
)
LABEL = Label("kernel_time", "How long does a kernel of this size take on this GPU?")
_PRECISIONS = {
    "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "half": "bf16", "float32": "fp32",
    "fp8_e4m3": "fp8", "e4m3": "fp8", "nvfp4": "fp4", "int8_wo": "int8_weights",
    "w8a16": "int8_weights", "int4_wo": "int4_weights", "int4": "int4_weights",
    "w4a16": "int4_weights", "awq": "int4_weights", "gptq": "int4_weights",
    "mxfp4": "fp4_weights", "w4a16_mxfp4": "fp4_weights",
}  # fmt: skip
_ELEMENT_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "fp8_block": 1.0, "fp4": 0.5}
_SPREADS = {
    "": "power_law_1.2", "balanced": "balanced", "power_law": "power_law_1.2",
    "power_law_1.01": "power_law_1.01", "power_law_1.2": "power_law_1.2",
}  # fmt: skip
_ATTENTION = {"batch": None, "seq": None, "heads": None, "kv_heads": None, "head_dim": None,
              "window": 0.0}  # fmt: skip
_COLLECTIVE = {"elements": None, "ranks": None}
# What each operation asks for; a number stands in where it is left out.
OPERATIONS: Mapping[str, Mapping[str, float | None]] = {
    "matmul": {"m": None, "n": None, "k": None},
    "attention_prefill": _ATTENTION,
    "attention_decode": _ATTENTION,
    "experts": {"m": None, "n": None, "k": None, "experts": None, "topk": 0.0, "tp": 1.0,
                "ep": 1.0},
    "all_reduce": _COLLECTIVE,
    "all_gather": _COLLECTIVE,
    "reduce_scatter": _COLLECTIVE,
    "alltoall": _COLLECTIVE,
}  # fmt: skip
SIZES = tuple(dict.fromkeys(name for names in OPERATIONS.values() for name in names))
COLUMNS = ("op", "gpu", "precision", *SIZES, "distribution")
_LARGEST = 1e9
_LONGEST_NS = 3.6e12  # an hour: nobody runs such a kernel


@dataclass(frozen=True)
class _Kernel:
    """A row that can be asked about."""

    row: int
    gpu: Gpu
    op: str
    number_format: str
    sizes: Mapping[str, float]


def time_kernels(rows: Sequence[Facts], common: Facts | None = None) -> Result:
    """Return the times of described kernels, a row each, with the columns that came in; `common`
    stands in for columns that there are not."""
    answers: list[tuple[Any, ...]] = [(None, None, None, None, "")] * len(rows)
    groups: dict[tuple[str, str, str], list[_Kernel]] = {}
    for number, row in enumerate(rows):
        try:
            kernel = _read_kernel(number, {**(common or {}), **row})
        except UsageError as error:
            answers[number] = (None, None, None, None, str(error))
        else:
            groups.setdefault((kernel.gpu.name, kernel.op, kernel.number_format), []).append(kernel)
    for kernels in groups.values():
        for kernel, answer in zip(kernels, _time_group(kernels), strict=True):
            answers[kernel.row] = answer
    names = dict.fromkeys(name for row in rows for name in row if name not in RETURNS.names)
    columns = {name: [_to_cell(row.get(name)) for row in rows] for name in names}
    result = pa.table({name: pa.array(values, STRING) for name, values in columns.items()})
    for number, column in enumerate(RETURNS):
        values = [answer[number] for answer in answers]
        result = result.append_column(column, pa.array(values, column.type))
    unanswered = sum(answer[0] is None for answer in answers)
    return Result(LABEL, result, {"kernels": len(rows), "unanswered": unanswered})


def time_kernel(file: str | Path | None = None, /, **sizes: Any) -> Result:
    """Return how long kernels take: of a CSV file with a row for each, or of one described here.

    Columns of a file and arguments are the same: `op`, `gpu`, `precision` and sizes.

    >>> import htk
    >>> answer = htk.kernel_time(op="matmul", gpu="h100", m=8192, n=4096, k=4096)
    >>> answer["basis"].to_pylist()
    ['measured']
    """
    unknown = sorted(set(sizes) - set(COLUMNS))
    if unknown:
        raise UsageError(f"unknown {', '.join(unknown)}; known are {', '.join(COLUMNS)}")
    if file is None:
        return time_kernels([sizes])
    return time_kernels(read_kernels(Path(file)), sizes)


def read_kernels(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of kernels."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no CSV file of kernels: {error}") from error
    reader = csv.reader(io.StringIO(text))
    try:
        lines = list(reader)
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: {error}") from error
    names = lines[0] if lines else []
    if "op" not in names:
        raise UsageError(f"{path}: no column op; known are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two columns have the same name")
    return [dict(zip(names, line + [""] * len(names), strict=False)) for line in lines[1:] if line]


def _to_cell(value: Any) -> str | None:
    return None if value is None else str(value)


def _read_kernel(number: int, row: Facts) -> _Kernel:
    op = str(row.get("op") or "").strip().lower()
    if op not in OPERATIONS:
        raise UsageError(f"op {op!r}: one of {', '.join(OPERATIONS)} was expected")
    name = str(row.get("gpu") or "").strip()
    if not name:
        raise UsageError("no gpu")
    device = _find_gpu(name)
    number_format = _read_format(op, device, str(row.get("precision") or "").strip().lower())
    sizes = {
        column: _read_size(op, column, row, otherwise)
        for column, otherwise in OPERATIONS[op].items()
    }
    if op == "experts" and sizes["topk"]:
        spread = str(row.get("distribution") or "").strip().lower()
        if spread not in _SPREADS:
            raise UsageError(f"distribution {spread!r}: balanced or power_law was expected")
        if sizes["topk"] > sizes["experts"]:
            raise UsageError("topk: more than there are experts")
        number_format += f"/{_SPREADS[spread]}"
    if op.startswith("attention") and sizes["kv_heads"] > sizes["heads"]:
        raise UsageError("kv_heads: more than there are heads")
    if "ranks" in sizes:
        sizes["bytes"] = sizes["elements"] * _ELEMENT_BYTES.get(number_format, 2.0)
        number_format = "bf16"
        most = most_ranks(device, op)
        if not 2 <= sizes["ranks"] <= most:
            raise UsageError(f"ranks: 2 to {most:.0f} of one node were measured")
    return _Kernel(number, device, op, number_format, sizes)


def _find_gpu(name: str) -> Gpu:
    try:
        return gpu(name)
    except UsageError:
        raise UsageError(f"no GPU {name!r} in the catalogue") from None


def _read_format(op: str, device: Gpu, name: str) -> str:
    number_format = _PRECISIONS.get(name, name or "bf16")
    if number_format not in FORMATS:
        raise UsageError(f"precision {name!r}: one of {', '.join(FORMATS)} was expected")
    units = FORMATS[number_format][0]
    computes = op in ("matmul", "attention_prefill", "experts")
    if computes and units != "bf16" and not device.has(units):
        raise UsageError(f"{device.name} has no products in {units}")
    return number_format


def _read_size(op: str, column: str, row: Facts, otherwise: float | None) -> float:
    value = row.get(column)
    if column == "experts" and value in (None, "") and not row.get("topk"):
        value = row.get("heads")  # as recordings of grouped products name their groups
    if value is None or str(value).strip() == "":
        if otherwise is None:
            raise UsageError(f"{op} needs {column}")
        return otherwise
    try:
        size = float(str(value))
    except ValueError:
        raise UsageError(f"{column} {value!r}: a number was expected") from None
    if otherwise == 0 and size == 0:
        return 0.0
    if not (math.isfinite(size) and size >= 1 and size == int(size)):
        raise UsageError(f"{column} {value}: a whole number from 1 was expected")
    if size > _LARGEST * (1e3 if column == "elements" else 1):
        raise UsageError(f"{column} {value}: larger than any kernel's")
    return size


def _time_group(kernels: Sequence[_Kernel]) -> Iterable[tuple[Any, ...]]:
    """Return the answers to kernels of one operation and format on one accelerator."""
    first = kernels[0]
    sizes: dict[str, Floats] = {
        name: np.array([kernel.sizes[name] for kernel in kernels]) for name in first.sizes
    }
    if first.op == "experts" and "/" not in first.number_format:
        times = estimate_grouped(first.gpu, first.number_format, sizes)
    else:
        if first.op == "experts":
            sizes |= {"tokens": sizes["m"], "ffn": sizes["n"], "hidden": sizes["k"]}
        times = estimate_kernels(first.gpu, first.op, first.number_format, sizes)
    columns = [times.expected, times.low, times.high, times.best]
    rounded = [np.rint(np.minimum(column, 2.0**60)).astype(np.int64).tolist() for column in columns]
    for expected, *others, basis in zip(*rounded, times.bases, strict=True):
        if expected > _LONGEST_NS:
            yield None, None, None, None, "larger than any kernel: it would take hours"
        else:
            yield expected, *others, basis
