"""The atlas: what measured kernels took, over what a law says of their sizes.

Each table holds one operation in one number format on one accelerator: a row for each shape (of a
product: its columns and depth), a column for each size that it was measured at (its rows).
Between shapes a plane is laid through the nearest ones, between sizes a line. `python -m
bench.atlas` writes the file from measured kernels; docs/kernels.md says from which.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from htk.base.columns.types import Floats, Ints, Mask
from htk.base.mappings import Fields

FILE = Path(__file__).with_name("kernel_atlas.zip")
INDEX = "index.json"
STEP = 0.015  # of the logarithm, between two values that are told apart
BEST_STEP = 0.03
_NEAREST = 9
_RIDGE = 0.02  # how little a plane trusts a slope that its shapes hardly tell
_TINY = 1e-4


@dataclass(frozen=True)
class KernelKind:
    """What tells kernels of an operation apart."""

    shape: tuple[str, ...]
    along: str

    def measure_shapes(self, shapes: Floats) -> Floats:
        """Return coordinates in inverse near shapes behave alike: logarithms, weighed."""
        column = dict(zip(self.shape, shapes.T, strict=True))
        logs = {name: np.log(np.maximum(values, 1.0)) for name, values in column.items()}
        if self.along == "m":
            coordinates = [logs["n"], logs["k"]]
        elif self.along == "seq":
            window = np.where(column["window"] > 0, column["window"], 2.0**17)
            shared = logs["heads"] - logs["kv_heads"]
            coordinates = [
                *(logs["batch"] + logs["heads"], 0.5 * shared, 0.2 * logs["batch"]),
                *(3 * logs["head_dim"], 3 * np.log2(window)),
            ]
        elif self.along == "tokens":
            width = logs["ffn"] - logs["tp"]
            coordinates = [logs["hidden"], width, logs["topk"], logs["experts"], logs["ep"]]
        else:
            coordinates = [logs["ranks"]]
        return np.column_stack(coordinates)


_ATTENTION = KernelKind(("head_dim", "window", "batch", "heads", "kv_heads"), "seq")
_COLLECTIVE = KernelKind(("ranks",), "bytes")
OPERATIONS: Mapping[str, KernelKind] = {
    "matmul": KernelKind(("n", "k"), "m"),
    "attention_prefill": _ATTENTION,
    "attention_decode": _ATTENTION,
    "experts": KernelKind(("hidden", "ffn", "tp", "topk", "experts", "ep"), "tokens"),
    "all_reduce": _COLLECTIVE,
    "all_gather": _COLLECTIVE,
    "reduce_scatter": _COLLECTIVE,
    "alltoall": _COLLECTIVE,
}
MEASURED, SIZE, SHAPE, BEYOND = 0, 1, 2, 3  # how near a measured kernel is


@dataclass(frozen=True)
class Reading:
    """What a table says of some kernels: logarithms over the law, and how near they are."""

    typical: Floats
    best: Floats  # of the fastest library over the median one
    nearness: Ints


@dataclass(frozen=True)
class Table:
    """Kernels of one operation and format on one accelerator."""

    operation: KernelKind
    shapes: Floats
    sizes: Floats
    typical: Floats  # logarithm of the time over the law, of each shape and size
    best: Floats
    measured: Mask

    def read(self, shapes: Floats, sizes: Floats) -> Reading:
        """Return what the table says of kernels of these shapes and sizes."""
        logs = np.log(self.sizes)
        asked = np.log(np.maximum(sizes, 1.0))
        right = np.clip(np.searchsorted(logs, asked), 1, len(logs) - 1)
        left = right - 1
        share = np.clip((asked - logs[left]) / (logs[right] - logs[left]), 0.0, 1.0)
        rows, weights, kind = self._find_rows(shapes)
        column = np.where(share < 0.5, left, right)
        exact = (np.abs(logs[column] - asked) < _TINY) & (kind == SIZE)
        hit = exact & self.measured[rows[:, 0], column]
        nearness = np.where(hit, MEASURED, kind)
        outside = (asked < logs[0] - _TINY) | (asked > logs[-1] + _TINY)
        nearness = np.where(outside, BEYOND, nearness)

        def weigh_grid(values: Floats) -> Floats:
            along = values[rows, left[:, None]] * (1 - share[:, None])
            along += values[rows, right[:, None]] * share[:, None]
            mixed: Floats = (along * weights).sum(axis=1)
            return np.clip(mixed, along.min(axis=1), along.max(axis=1))

        return Reading(weigh_grid(self.typical), np.minimum(weigh_grid(self.best), 0.0), nearness)

    @cached_property
    def _coordinates(self) -> Floats:
        return self.operation.measure_shapes(self.shapes)

    def _find_rows(self, shapes: Floats) -> tuple[Ints, Floats, Ints]:
        """Return the nearest rows of each shape, their weights, and SIZE, SHAPE or BEYOND."""
        unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        asked = self.operation.measure_shapes(unique)
        count = min(_NEAREST, len(self.shapes))
        rows = np.empty((len(unique), count), np.int64)
        own = np.square(self._coordinates).sum(axis=1)
        for begin in range(0, len(unique), 512):
            part = asked[begin : begin + 512]
            far = own - 2 * part @ self._coordinates.T  # less a square that is the same for all
            nearest = np.argpartition(far, count - 1, axis=1)[:, :count]
            order = np.argsort(np.take_along_axis(far, nearest, axis=1), axis=1, kind="stable")
            rows[begin : begin + 512] = np.take_along_axis(nearest, order, axis=1)
        exact = (self.shapes[rows[:, 0]] == unique).all(axis=1)
        weights = _weigh_neighbours(self._coordinates[rows] - asked[:, None, :])
        weights[exact] = np.eye(1, count)
        lowest = self._coordinates.min(axis=0)
        highest = self._coordinates.max(axis=0)
        inside = ((asked >= lowest - _TINY) & (asked <= highest + _TINY)).all(axis=1)
        kind = np.where(exact, SIZE, np.where(inside, SHAPE, BEYOND))
        return rows[inverse], weights[inverse], kind[inverse]


def _weigh_neighbours(away: Floats) -> Floats:
    """Return weights that lay a plane through neighbours so far away, nearer ones counting more."""
    count = away.shape[2]
    near = 1 / (np.square(away).sum(axis=2) + 0.01)
    design = np.concatenate([np.ones((*away.shape[:2], 1)), away], axis=2)
    weighed = design * near[:, :, None]
    normal = np.einsum("qni,qnj->qij", design, weighed)
    ridge = np.eye(count + 1) * _RIDGE
    ridge[0, 0] = 0.0
    normal += ridge * normal[:, :1, :1]
    first = np.zeros((len(away), count + 1, 1))
    first[:, 0] = 1.0
    solved = np.linalg.solve(normal, first)
    weights: Floats = np.einsum("qni,qi->qn", weighed, solved[:, :, 0])
    return weights


@cache
def read_index() -> Fields:
    """Return what the file says of itself: accelerators, their tables, by how much it misses."""
    with zipfile.ZipFile(FILE) as atlas:
        index: Fields = json.loads(atlas.read(INDEX))
    return index


@cache
def load_table(gpu: str, op: str, number_format: str) -> Table | None:
    """Return a table of the file; None: nobody measured that."""
    if number_format not in read_index()["tables"].get(gpu, {}).get(op, ()):
        return None
    with zipfile.ZipFile(FILE) as atlas:
        return unpack_table(op, atlas.read(f"{gpu}/{op}/{number_format}"))


def pack_table(table: Table) -> bytes:
    """Return a table as bytes that compress well: steps from size to size, byte by byte."""
    codes = np.rint(table.typical / STEP).astype(np.int16)
    steps = np.diff(codes, axis=1, prepend=np.int16(0)).astype("<i2")
    packed = io.BytesIO()
    np.savez(
        packed,
        shapes=np.diff(table.shapes.astype(np.int32), axis=0, prepend=0).T,
        sizes=table.sizes.astype(np.int64),
        typical=steps.reshape(-1).view(np.uint8).reshape(-1, 2).T,
        best=np.clip(np.rint(-table.best / BEST_STEP), 0, 255).astype(np.uint8),
        measured=np.packbits(table.measured),
    )
    return packed.getvalue()


def unpack_table(op: str, packed: bytes) -> Table:
    """Return the table that `pack_table` packed."""
    arrays = np.load(io.BytesIO(packed))
    shapes = np.cumsum(arrays["shapes"].T, axis=0).astype(np.float64)
    sizes = arrays["sizes"].astype(np.float64)
    steps = np.ascontiguousarray(arrays["typical"].T).view("<i2").reshape(len(shapes), len(sizes))
    measured = np.unpackbits(arrays["measured"], count=steps.size).astype(np.bool_)
    return Table(
        OPERATIONS[op],
        shapes,
        sizes,
        np.cumsum(steps, axis=1) * STEP,
        arrays["best"].reshape(steps.shape) * -BEST_STEP,
        measured.reshape(steps.shape),
    )
