"""How long a kernel takes: measured where the atlas holds it, else by what lies nearest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats, Ints
from htk.physics.hardware import Gpu, load_catalogue
from htk.physics.kernel_atlas import (
    BEYOND,
    MEASURED,
    OPERATIONS,
    SHAPE,
    SIZE,
    Reading,
    load_table,
    read_index,
)
from htk.physics.kernel_laws import LAWS, time_products

SIBLING, FORMULA = 4, 5  # beside the nearness of a reading
BASES = {
    MEASURED: "measured",
    SIZE: "between measured sizes",
    SHAPE: "between measured shapes",
    BEYOND: "beyond measured sizes",
    SIBLING: "measured on a sibling",
    FORMULA: "formula",
}
LENGTHS_NS = (1e4, 1e5)  # kernels of up to so long miss by much the same
_GENERATIONS = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
LARGE_PRODUCTS = 0.92  # of the fastest measured product, that large ones take
_FAR = 3.0  # as much as a whole generation, against the logarithm of two GPUs' balances
# Formats that nobody measured, by one whose kernels are built alike.
_LIKE = {"tf32": "bf16", "fp32": "bf16", "fp8_block": "fp8", "fp4": "fp8", "int8_weights": "bf16",
         "int4_weights": "bf16", "fp4_weights": "int4_weights", "fp8": "bf16"}  # fmt: skip


class _AtlasSource(NamedTuple):
    """Where the atlas answers for a GPU, and the GPU with the rates that laws take there."""

    name: str
    number_format: str
    gpu: Gpu


@dataclass(frozen=True)
class KernelTimes:
    """Times of some kernels in ns: typical, the ends of a 90 % interval, the fastest library's."""

    expected: Floats
    low: Floats
    high: Floats
    best: Floats
    nearness: Ints  # a key of BASES

    @property
    def bases(self) -> list[str]:
        """Return why each is believed."""
        return [BASES[near] for near in self.nearness.tolist()]


def estimate_kernels(
    gpu: Gpu, op: str, number_format: str, sizes: Mapping[str, Floats]
) -> KernelTimes:
    """Return the times of kernels of one operation and format; experts' formats end in how tokens
    are spread over them: bf16/balanced."""
    source, kept, gpu = _find_source(gpu, op, number_format)
    reading = read_atlas(source, op, kept, sizes)
    nearness = reading.nearness
    if source != gpu.name or kept != number_format:
        by_sibling = kept == number_format and _count_generations(gpu, source) == 0
        nearness = np.full(len(nearness), SIBLING if by_sibling else FORMULA)
    law = LAWS[op](gpu, number_format.partition("/")[0], sizes)
    expected = law * np.exp(reading.typical)
    low, high = _read_misses(op, kept, nearness, expected)
    return KernelTimes(
        expected, expected * low, expected * high, expected * np.exp(reading.best), nearness
    )


def estimate_grouped(gpu: Gpu, number_format: str, sizes: Mapping[str, Floats]) -> KernelTimes:
    """Return the times of products in groups, one for each expert, in one kernel: as far from their
    law as a single product of all their rows is."""
    single = estimate_kernels(gpu, "matmul", number_format, sizes)
    gpu = _find_source(gpu, "matmul", number_format).gpu
    law = LAWS["matmul"](gpu, number_format, sizes)
    ratio = time_products(gpu, number_format, sizes, groups=sizes["experts"]) / law
    return KernelTimes(
        ratio * single.expected,
        ratio * single.low,
        ratio * single.high,
        ratio * single.best,
        np.full(len(ratio), FORMULA),
    )


def time_kernel(
    gpu: Gpu, op: str, number_format: str, size: float, shape: tuple[float, ...], *,
    fastest: bool = False,
) -> float:  # fmt: skip
    """Return the time of a kernel of this size along what its table keeps for each shape: the
    typical one, or the fastest library's.

    What was measured falls and leaps here and there, where a library changes its kernel or a time
    is wrong. Here more takes no less, nor more in proportion, so that neither a longer nor a busier
    plan is the faster one.
    """
    logs, rising = _read_rising(gpu, op, number_format, shape, fastest)
    asked = math.log(max(size, 1.0))
    along = float(np.interp(asked, logs, rising))
    if asked > logs[-1]:
        law_gpu = _find_source(gpu, op, number_format).gpu
        far = np.array([size, math.exp(logs[-1])])
        ends = _time_by_law(law_gpu, op, number_format, far, shape)
        along += math.log(ends[0] / ends[1])
    return math.exp(along)


@lru_cache(maxsize=4096)
def _read_rising(
    gpu: Gpu, op: str, number_format: str, shape: tuple[float, ...], fastest: bool
) -> tuple[Floats, Floats]:
    """Return the logarithms of sizes that a shape was measured at, and of times that rise with
    them, at most in proportion."""
    source, kept, gpu = _find_source(gpu, op, number_format)
    table = load_table(source, op, kept)
    if table is None:
        raise KeyError(f"{source} has no {kept} of {op}")
    reading = table.read(np.tile(shape, (len(table.sizes), 1)), table.sizes)
    times = np.log(_time_by_law(gpu, op, number_format, table.sizes, shape)) + reading.typical
    if fastest:
        times += reading.best
    logs = np.log(table.sizes)
    most = 2 * logs if op == "attention_prefill" else logs  # in proportion, or to pairs of tokens
    return logs, most - _smooth_rising(most - _smooth_rising(times))


def _smooth_rising(values: Floats) -> Floats:
    """Return values that never fall: halfway between the most of those before, and the least of
    those after."""
    most = np.maximum.accumulate(values)
    least = np.minimum.accumulate(values[::-1])[::-1]
    return (most + least) / 2


def _time_by_law(
    gpu: Gpu, op: str, number_format: str, along: Floats, shape: tuple[float, ...]
) -> Floats:
    operation = OPERATIONS[op]
    sizes = {operation.along: along}
    for name, size in zip(operation.shape, shape, strict=True):
        sizes[name] = np.full(len(along), size)
    return LAWS[op](gpu, number_format.partition("/")[0], sizes)


def most_ranks(gpu: Gpu, op: str) -> float:
    """Return the ranks of the largest collective that was measured within a node."""
    source, kept, _ = _find_source(gpu, op, "bf16")
    table = load_table(source, op, kept)
    return 0.0 if table is None else float(table.shapes.max())


def read_atlas(source: str, op: str, number_format: str, sizes: Mapping[str, Floats]) -> Reading:
    """Return what the table of an accelerator says of kernels of these sizes."""
    table = load_table(source, op, number_format)
    if table is None:
        raise KeyError(f"{source} has no {number_format} of {op}")
    operation = OPERATIONS[op]
    shapes = np.column_stack([sizes[name] for name in operation.shape])
    return table.read(shapes, sizes[operation.along])


@cache
def _find_source(gpu: Gpu, op: str, number_format: str) -> _AtlasSource:
    """Return the accelerator whose table answers, and the format there: the GPU's own, that of its
    nearest sibling, or that of the nearest format."""
    tables = read_index()["tables"]
    plain, slash, spread = number_format.partition("/")
    while True:
        wanted = f"{plain}{slash}{spread}"
        having = [name for name, ops in tables.items() if wanted in ops.get(op, ())]
        if having:
            source = nearest_gpu(gpu, having)
            return _AtlasSource(source, wanted, _with_rates_of(gpu, source))
        plain = _LIKE[plain]


def _with_rates_of(gpu: Gpu, source: str) -> Gpu:
    """Return a GPU whose products nobody measured as one that comes as near its peak as the one
    whose kernels it is held to, where that is of its architecture."""
    other = load_catalogue()[source]
    if gpu.achievable_bf16_tflops or other.architecture != gpu.architecture:
        return gpu
    share = other.achievable_half_tflops / other.half_tflops
    return replace(gpu, achievable_bf16_tflops=share * gpu.half_tflops)


def nearest_gpu(gpu: Gpu, names: list[str]) -> str:
    """Return the accelerator among those named that is built most like this one."""
    entries = load_catalogue()

    def measure_distance(name: str) -> float:
        other = entries[name]
        balance = math.log(_compute_balance(gpu) / _compute_balance(other))
        size = math.log(gpu.half_tflops / other.half_tflops)
        return _FAR * _count_generations(gpu, name) + math.hypot(balance, size)

    return gpu.name if gpu.name in names else min(names, key=measure_distance)


def _compute_balance(gpu: Gpu) -> float:
    return gpu.half_tflops / gpu.memory_gbps


def _count_generations(gpu: Gpu, name: str) -> int:
    other = load_catalogue()[name]
    order = _GENERATIONS
    if gpu.architecture not in order or other.architecture not in order:
        return 0 if gpu.architecture == other.architecture else len(order)
    return abs(order.index(gpu.architecture) - order.index(other.architecture))


def _read_misses(op: str, kept: str, nearness: Ints, expected: Floats) -> tuple[Floats, Floats]:
    """Return the factors at the ends of the interval, as sizes and accelerators left out taught."""
    learnt = read_index()["misses"][op][kept.partition("/")[0]]
    misses = np.array(learnt)  # by nearness, length: low and high
    length = np.searchsorted(LENGTHS_NS, expected)
    ends = np.exp(misses[nearness, length])
    return ends[:, 0], ends[:, 1]


def partly_hidden(reading: float, computing: float) -> float:
    """Return the time of a kernel that would take so long to read, and so long to compute.

    The two hide each other only in part: near the balance, where both take as long, the kernel
    takes longer than either. Of exponents 1 to 6 of their sum, and the longer of the two alone, 2
    and 3 agree best with batches that TensorRT-LLM published (docs/serving_scorecard.md).
    """
    return math.hypot(reading, computing)
