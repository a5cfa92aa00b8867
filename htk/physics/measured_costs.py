"""What measured kernels took for the work of operators' calls: products, experts and attention by
size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import NONE, Floats, Ints
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import FORMULA, KernelTimes, estimate_grouped, estimate_kernels
from htk.physics.layer_time import ATTENTION_BACKWARD, SERVED_SPREAD
from htk.physics.op_costs import CostOrReason
from htk.physics.op_costs.call import Cost

_FORMATS = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "fp4": "fp4"}
_EXPERTS = {  # by the format of what is multiplied, and the bits of weights
    ("bf16", 16): "bf16", ("bf16", 8): "fp8", ("bf16", 4): "fp4_weights",
    ("fp8", 8): "fp8", ("fp4", 4): "fp4",
}  # fmt: skip
MEASURED_FAMILIES = ("gemm", "moe", "attention")
_CAUSAL = 0.75  # of all pairs: a call with fewer looks only back


@dataclass
class MeasuredCosts:
    """Times of calls of each kind; NaN and NONE where nothing like it was measured."""

    expected: Floats
    low: Floats
    high: Floats
    best: Floats
    nearness: Ints
    reasons: list[str | None]

    @classmethod
    def nothing(cls, reasons: list[str | None]) -> "MeasuredCosts":
        """Return those of kinds of which nothing was measured, for these reasons."""
        expected, low, high, best = np.full((4, len(reasons)), np.nan)
        return cls(expected, low, high, best, np.full(len(reasons), NONE), reasons)

    def put(self, kinds: Sequence[int], times: KernelTimes, factors: Floats) -> None:
        """Fill in the times of some kinds."""
        rows = np.array(kinds)
        self.expected[rows] = factors * times.expected
        self.low[rows] = factors * times.low
        self.high[rows] = factors * times.high
        self.best[rows] = factors * times.best
        self.nearness[rows] = np.where(factors == 1, times.nearness, FORMULA)


@dataclass(frozen=True)
class _Asked:
    """A kind of call that the atlas can be asked about."""

    kind: int
    sizes: dict[str, float]
    factor: float = 1.0  # of what is asked


def measure_costs(gpu: Gpu | None, costs: Sequence[CostOrReason]) -> MeasuredCosts:
    """Return what measured kernels took for each kind of call."""
    if gpu is None:
        return MeasuredCosts.nothing(["the GPU is not known" for _ in costs])
    questions = [_build_atlas_query(kind, cost) for kind, cost in enumerate(costs)]
    reasons = [question if isinstance(question, str) else None for question in questions]
    measured = MeasuredCosts.nothing(reasons)
    groups: dict[tuple[str, str], list[_Asked]] = {}
    for question in questions:
        if not isinstance(question, str):
            groups.setdefault(question[0], []).append(question[1])
    for (op, number_format), asked in groups.items():
        sizes = {name: np.array([each.sizes[name] for each in asked]) for name in asked[0].sizes}
        if op == "grouped":
            times = estimate_grouped(gpu, number_format, sizes)
        else:
            times = estimate_kernels(gpu, op, number_format, sizes)
        factors = np.array([each.factor for each in asked])
        measured.put([each.kind for each in asked], times, factors)
    return measured


def _build_atlas_query(kind: int, cost: CostOrReason) -> tuple[tuple[str, str], _Asked] | str:
    """Return what to ask the atlas about a call, or why it cannot be asked."""
    if not isinstance(cost, Cost):
        return cost
    number_format = _FORMATS.get(cost.dtype or "")
    if not cost.matrix or cost.family not in MEASURED_FAMILIES:
        return "no product and no attention"
    if number_format is None:
        return f"nothing in {cost.dtype} was measured"
    sizes = {name: float(size) for name, size in cost.dims}
    if cost.family == "gemm":
        return _ask_product(kind, number_format, sizes)
    if cost.family == "moe":
        return _ask_experts(kind, number_format, sizes)
    return _ask_attention(kind, number_format, cost, sizes)


def _ask_product(
    kind: int, number_format: str, sizes: dict[str, float]
) -> tuple[tuple[str, str], _Asked] | str:
    if not sizes or min(sizes.values()) < 1:
        return "sizes not recorded"
    batch = sizes["batch"]
    product = {"m": batch * sizes["product_m"], "n": sizes["product_n"], "k": sizes["product_k"]}
    if batch == 1:
        return ("matmul", number_format), _Asked(kind, product)
    return ("grouped", number_format), _Asked(kind, product | {"experts": batch})


def _ask_experts(
    kind: int, number_format: str, sizes: dict[str, float]
) -> tuple[tuple[str, str], _Asked] | str:
    if not sizes or min(sizes.values()) < 1:
        return "sizes not recorded"
    bits = int(sizes.pop("weight_bits"))
    weights = _EXPERTS.get((number_format, bits))
    if weights is None:
        return f"experts in {number_format} with weights of {bits} bits: not measured"
    # Sizes are those of one GPU.
    return ("experts", f"{weights}/{SERVED_SPREAD}"), _Asked(kind, sizes | {"tp": 1.0, "ep": 1.0})


def _ask_attention(
    kind: int, number_format: str, cost: Cost, sizes: dict[str, float]
) -> tuple[tuple[str, str], _Asked] | str:
    if not sizes or min(sizes.values()) < 1 or (cost.assumed and sizes["query_length"] > 1):
        return "sizes not recorded"
    queries = sizes["query_length"]
    keys = sizes["key_length"]
    asked = {name: sizes.get(name, 1.0) for name in ("batch", "heads", "kv_heads")}
    asked |= {"head_dim": sizes["head_size"], "seq": keys, "window": 0.0}
    if queries == 1:
        return ("attention_decode", number_format), _Asked(kind, asked)
    if queries != keys:
        return "attention of some queries over more keys: not measured"
    backward = cost.model_flops is not None
    pairs = asked["batch"] * asked["heads"] * keys * keys
    done = cost.of_model / (2 if backward else 1) / (4 * sizes["head_size"])
    factor = (ATTENTION_BACKWARD if backward else 1.0) * (2.0 if done > _CAUSAL * pairs else 1.0)
    return ("attention_prefill", number_format), _Asked(kind, asked, factor)
